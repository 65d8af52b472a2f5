// The results that follow on a live page. The age of the image is shown, so that a frozen one does not look alive.
const OLD = 2; // seconds
const SMOOTH = 0.2; // weight of a new range of the colours
const BINS = 50;

function drawHistogram({ confidence }) {
  const counts = new Float64Array(BINS);
  let sure = 0;
  for (const level of confidence) {
    counts[Math.min(BINS - 1, Math.floor((level / 256) * BINS))]++;
    if (level >= 0.9 * 255) sure++;
  }
  const most = Math.max(...counts);
  const bars = [...counts].map((count, at) => `M${at / BINS} 1V${1 - count / most}h${0.9 / BINS}V1z`);
  $("histogram").querySelector("path").setAttribute("d", bars.join(""));
  $("confident").textContent = `${((100 * sure) / confidence.length).toFixed(0)} % of the pixels have a confidence of at least 0.9`;
}

async function follow(planes, renew) {
  let shown = { number: -1, age: 0, at: performance.now() };
  let paused = null, lost = false;
  const tell = () => {
    const age = shown.age + (performance.now() - shown.at) / 1000;
    const old = lost || age > OLD;
    $("age").classList.toggle("old", old && !paused);
    const text = `result ${shown.number}, the image is ${age.toFixed(1)} s old`;
    $("age").textContent = paused ? `paused: ${text}` : lost ? `pam has ended or cannot be reached: ${text}` : old ? `no new image: ${text}` : text;
  };
  setInterval(tell, 200);
  $("pause").addEventListener("click", () => {
    if (paused) paused();
    paused = paused ? null : () => {};
    $("pause").setAttribute("aria-pressed", String(Boolean(paused)));
    $("pause").textContent = paused ? "Continue" : "Pause";
  });
  for (;;) {
    if (paused) await new Promise((go) => (paused = go));
    try {
      const answer = await fetch(`frame/${shown.number}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const frame = await answer.json();
      lost = false;
      if (paused) continue;
      const at = performance.now();
      if (frame.number !== shown.number) {
        if (frame.facts.width !== width || frame.facts.height !== height) return location.reload();
        const before = facts.range;
        Object.assign(facts, frame.facts);
        if (shown.number >= 0) facts.range = before.map((value, end) => value + SMOOTH * (frame.facts.range[end] - value));
        Object.assign(planes, await unpack(frame.values));
        $("left").src = `data:image/jpeg;base64,${frame.image}`;
        renew();
        if ($("histogram")) drawHistogram(planes);
        $("speed").textContent = frame.speed;
        $("snapshot").href = `snapshot/${frame.number}`;
        $("snapshot").download = `live-${frame.number}.html`;
      }
      shown = { number: frame.number, age: frame.age, at };
      tell();
    } catch {
      lost = true;
      tell();
      await new Promise((go) => setTimeout(go, 1000));
    }
  }
}
