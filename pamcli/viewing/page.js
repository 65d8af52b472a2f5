"use strict";
const $ = (id) => document.getElementById(id);
const facts = JSON.parse($("facts").textContent);
const { width, height, stride, camera } = facts;
const bytesOf = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
const colors = bytesOf(facts.colors);

// Deflated planes of width x height bytes: low and high bytes of steps from pixel to pixel, confidence.
async function unpack(values = $("values").textContent) {
  const stream = new Blob([bytesOf(values)]).stream();
  const bytes = new Uint8Array(await new Response(stream.pipeThrough(new DecompressionStream("deflate"))).arrayBuffer());
  const count = width * height;
  const disparity = new Float32Array(count);
  const confidence = facts.confidence ? new Uint8Array(count) : null;
  for (let at = 0, stored = 0, sure = 0; at < count; at++) {
    if (at % width === 0) stored = sure = 0;
    const step = bytes[at] | (bytes[count + at] << 8);
    stored = (stored + ((step >> 1) ^ -(step & 1))) & 0xffff;
    disparity[at] = stored ? facts.low + (stored - 1) * facts.step : NaN;
    if (confidence) confidence[at] = sure = (sure + bytes[2 * count + at]) & 0xff;
  }
  return { disparity, confidence };
}

const depthOf = (disparity) => {
  const shifted = disparity + camera.offset;
  return shifted > 0 ? (camera.focal_length * camera.baseline) / shifted : NaN;
};

// Left camera's coordinates of a pixel that is shown: X to the right, Y down, Z ahead, metres.
const pointOf = (x, y, disparity) => {
  const z = depthOf(disparity);
  const [cx, cy] = camera.principal;
  return [((x * stride - cx) * z) / camera.focal_length, ((y * stride - cy) * z) / camera.focal_length_y, z];
};

// Metres as text, with the digits that a length of this scale deserves: four.
const metres = (value, scale = value) => {
  const digits = 3 - Math.floor(Math.log10(Math.abs(scale) || 1));
  return value.toFixed(Math.min(6, Math.max(0, digits)));
};

const twoDigits = (value) => value.toFixed(2);
// What can be shown. A range runs from the dark end of the colours to the bright one, which is near.
const LAYERS = {
  disparity: { unit: " px", range: () => facts.range, text: twoDigits, value: (planes, at) => planes.disparity[at] },
  depth: { unit: " m", range: () => facts.depths, text: metres, value: (planes, at) => depthOf(planes.disparity[at]) },
  confidence: { unit: "", range: () => [0, 1], text: twoDigits, value: (planes, at) => planes.confidence[at] / 255 },
};

function showPlane(planes) {
  const { unit, range, text, value: valueOf } = LAYERS[$("plane").value];
  const [low, high] = range();
  const image = new ImageData(width, height);
  for (let at = 0; at < width * height; at++) {
    const value = valueOf(planes, at);
    const level = Math.round(255 * Math.min(1, Math.max(0, (value - low) / (high - low || 1))));
    if (value === value) for (let c = 0; c < 3; c++) image.data[4 * at + c] = colors[3 * level + c];
    image.data[4 * at + 3] = 255;
  }
  $("map").getContext("2d").putImageData(image, 0, 0);
  $("low").textContent = text(low) + unit;
  $("high").textContent = text(high) + unit;
  const legend = new ImageData(256, 1);
  for (let at = 0; at < 256; at++) legend.data.set([...colors.subarray(3 * at, 3 * at + 3), 255], 4 * at);
  $("legend").getContext("2d").putImageData(legend, 0, 0);
}

function pixelText(planes, x, y) {
  const at = y * width + x;
  const disparity = planes.disparity[at];
  const parts = [`x ${x * stride}, y ${y * stride}`];
  if (disparity === disparity) {
    parts.push(`disparity ${disparity.toFixed(2)} px`);
    const [X, Y, Z] = facts.calibration ? pointOf(x, y, disparity) : [];
    if (Z > 0) {
      const error = Z ** 2 / (camera.focal_length * camera.baseline);
      parts.push(`depth ${metres(Z)} m (± ${metres(error)} m for 1 px of disparity)`);
      parts.push(`X ${metres(X, Z)}, Y ${metres(Y, Z)}, Z ${metres(Z)} m`);
    } else if (facts.calibration) parts.push("depth unknown");
  } else parts.push("unknown");
  if (planes.confidence) parts.push(`confidence ${(planes.confidence[at] / 255).toFixed(2)}`);
  return parts.join(" · ");
}

function putAt(mark, x, y) {
  mark.style.left = `${(100 * (x + 0.5)) / width}%`;
  mark.style.top = `${(100 * (y + 0.5)) / height}%`;
}

// Returns what shows the values of the planes again.
function watchPointer(planes) {
  const area = $("compare");
  let now = [Math.floor(width / 2), Math.floor(height / 2)];
  let pointed = false;
  const read = (x, y, marked) => {
    now = [Math.min(width - 1, Math.max(0, x)), Math.min(height - 1, Math.max(0, y))];
    pointed = true;
    $("pixel").textContent = pixelText(planes, ...now);
    $("cursor").hidden = !marked;
    putAt($("cursor"), ...now);
  };
  const measure = measuring(planes, read);
  const under = (event, then) => {
    const box = area.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * width);
    const y = Math.floor(((event.clientY - box.top) / box.height) * height);
    if (x >= 0 && y >= 0 && x < width && y < height) then(x, y, event.pointerType === "touch");
  };
  for (const kind of ["pointermove", "pointerdown"]) area.addEventListener(kind, (event) => under(event, read)); // a tap moves nothing
  area.addEventListener("click", (event) => under(event, measure.take));
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  area.addEventListener("keydown", (event) => {
    const step = steps[event.key]?.map((way) => way * (event.shiftKey ? 10 : 1));
    if (step) read(now[0] + step[0], now[1] + step[1], true);
    else if (event.key === "Enter") measure.take(...now);
    else if (event.key === "Escape") measure.clear();
    else return;
    event.preventDefault();
    if (step) $("cursor").scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  $("split").addEventListener("input", () => area.style.setProperty("--split", $("split").value));
  $("plane").addEventListener("input", () => {
    showPlane(planes);
    measure.show();
  });
  $("actual").addEventListener("input", () => {
    area.classList.toggle("actual", $("actual").checked);
    area.style.width = $("actual").checked ? `${width}px` : "";
  });
  return () => {
    showPlane(planes);
    measure.show();
    if (pointed) $("pixel").textContent = pixelText(planes, ...now);
  };
}

addEventListener("load", async () => {
  const planes = await unpack();
  const renew = watchPointer(planes);
  showPlane(planes);
  if ($("cloud")) drawCloud(planes);
  else follow(planes, renew);
  document.body.dataset.ready = "yes";
});
