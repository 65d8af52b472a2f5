"use strict";
const $ = (id) => document.getElementById(id);
const facts = JSON.parse($("facts").textContent);
const { width, height, stride, camera } = facts;
const bytesOf = (text) => Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
const colors = bytesOf(facts.colors);

// Deflated planes of width x height bytes: low and high bytes of steps from pixel to pixel, confidence.
async function unpack() {
  const stream = new Blob([bytesOf($("values").textContent)]).stream();
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

function showPlane(planes) {
  const name = $("plane").value;
  const [low, high] = name === "confidence" ? [0, 1] : facts.range;
  const image = new ImageData(width, height);
  for (let at = 0; at < width * height; at++) {
    const value = name === "confidence" ? planes.confidence[at] / 255 : planes.disparity[at];
    const level = Math.round(255 * Math.min(1, Math.max(0, (value - low) / (high - low || 1))));
    if (value === value) for (let c = 0; c < 3; c++) image.data[4 * at + c] = colors[3 * level + c];
    image.data[4 * at + 3] = 255;
  }
  $("map").getContext("2d").putImageData(image, 0, 0);
  const unit = name === "confidence" ? "" : " px";
  $("low").textContent = low.toFixed(1) + unit;
  $("high").textContent = high.toFixed(1) + unit;
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
    const depth = facts.calibration ? depthOf(disparity) : NaN;
    if (depth === depth) parts.push(`depth ${depth.toPrecision(4)} m`);
    else if (facts.calibration) parts.push("depth unknown");
  } else parts.push("unknown");
  if (planes.confidence) parts.push(`confidence ${(planes.confidence[at] / 255).toFixed(2)}`);
  return parts.join(" · ");
}

function watchPointer(planes) {
  const area = $("compare");
  const read = (event) => {
    const box = area.getBoundingClientRect();
    const x = Math.floor(((event.clientX - box.left) / box.width) * width);
    const y = Math.floor(((event.clientY - box.top) / box.height) * height);
    if (x >= 0 && y >= 0 && x < width && y < height) $("pixel").textContent = pixelText(planes, x, y);
  };
  for (const kind of ["pointermove", "pointerdown"]) area.addEventListener(kind, read); // a tap moves nothing
  $("split").addEventListener("input", () => area.style.setProperty("--split", $("split").value));
  $("plane").addEventListener("input", () => showPlane(planes));
  $("actual").addEventListener("input", () => {
    area.classList.toggle("actual", $("actual").checked);
    area.style.width = $("actual").checked ? `${width}px` : "";
  });
}

addEventListener("load", async () => {
  const planes = await unpack();
  watchPointer(planes);
  showPlane(planes);
  drawCloud(planes);
  document.body.dataset.ready = "yes";
});
