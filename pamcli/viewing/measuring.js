// Measuring between points that are set in the image: a distance, a height above a plane, a profile along a line.
const minus = (a, b) => a.map((value, axis) => value - b[axis]);
const dot = (a, b) => a.reduce((sum, value, axis) => sum + value * b[axis], 0);
const cross = ([a, b, c], [x, y, z]) => [b * z - c * y, c * x - a * z, a * y - b * x];

const distance = ([a, b]) => Math.hypot(...minus(a, b));

// Above is the side of the plane where the camera is. NaN where the three points lie on one line.
function heightAbove([a, b, c, top]) {
  const [along, beside] = [minus(b, a), minus(c, a)];
  const normal = cross(along, beside);
  const size = Math.hypot(...normal);
  if (!(size > 1e-9 * Math.hypot(...along) * Math.hypot(...beside))) return NaN;
  return (dot(normal, minus(top, a)) / size) * (dot(normal, a) > 0 ? -1 : 1);
}

// How many points a tool takes, and how many of them stay when one more is taken.
const TOOLS = {
  distance: { count: 2, kept: 0, metric: distance },
  height: { count: 4, kept: 3, metric: heightAbove },
  profile: { count: 2, kept: 0 },
};

// Root of the sum of squares of what a pixel of disparity at each of the points makes, metres: to first order.
function errorOf(places, measure) {
  const step = 1e-4;
  const moved = (at, by) => measure(places.map(({ x, y, disparity }, n) => pointOf(x, y, disparity + (n === at ? by : 0))));
  return Math.hypot(...places.map((_, at) => (moved(at, step) - moved(at, -step)) / (2 * step)));
}

function metricText(name, places) {
  const { metric } = TOOLS[name];
  if (places.some(({ disparity }) => !(depthOf(disparity) > 0))) return `${name} unknown: a point has no depth at the moment.`;
  const value = metric(places.map(({ x, y, disparity }) => pointOf(x, y, disparity)));
  if (value !== value) return "The first three points are on one line, so they define no plane.";
  const what = name === "height" ? ` ${value < 0 ? "below" : "above"} the plane` : "";
  const error = errorOf(places, metric);
  return `${name} ${metres(Math.abs(value))} m${what} (± ${metres(error)} m for 1 px of disparity at each point)`;
}

// Pixels from one point to another, every one of the longer side.
function pixelsAlong([from, to]) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const count = Math.max(Math.abs(dx), Math.abs(dy), 1);
  return Array.from({ length: count + 1 }, (_, at) => ({ x: Math.round(from.x + (dx * at) / count), y: Math.round(from.y + (dy * at) / count) }));
}

function drawProfile(along, planes) {
  const name = $("plane").value;
  const { unit, text, value: valueOf } = LAYERS[name];
  const values = along.map(({ x, y }) => valueOf(planes, y * width + x));
  const known = values.filter((value) => value === value);
  if (!known.length) return `${name} is unknown all along the line`;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const heightOf = (value) => (high > low ? (high - value) / (high - low) : 0.5);
  const steps = values.map((value, at) => {
    if (value !== value) return "";
    const place = `${at / (values.length - 1)} ${heightOf(value)}`;
    return values[at - 1] === values[at - 1] && at ? `L${place}` : `M${place}h0`;
  });
  $("profile").querySelector("path").setAttribute("d", steps.join(""));
  $("top").textContent = text(high) + unit;
  $("bottom").textContent = text(low) + unit;
  const [first, last] = [along[0], along.at(-1)];
  const long = Math.hypot(last.x - first.x, last.y - first.y) * stride;
  const gaps = known.length < values.length ? `; unknown at ${values.length - known.length} of ${values.length} pixels` : "";
  return `${name} along ${long.toFixed(1)} px: ${text(low)} to ${text(high)}${unit}${gaps}`;
}

// `read(x, y)` shows a pixel. Returns what takes a point, what draws again, and what takes all points away.
function measuring(planes, read) {
  let places = [], along = [];
  function show() {
    const name = $("tool").value, tool = TOOLS[name];
    for (const place of places) place.disparity = planes.disparity[place.y * width + place.x]; // live, it changes
    const whole = tool && places.length === tool.count;
    along = whole && name === "profile" ? pixelsAlong(places) : [];
    const text = !tool ? "" : !whole ? `${places.length} of ${tool.count} points set: click or tap the image.` : along.length ? drawProfile(along, planes) : metricText(name, places);
    $("measured").textContent = text;
    $("profile").hidden = !along.length || !/ to /.test(text);
    for (const mark of document.querySelectorAll(".point")) mark.remove();
    places.forEach(({ x, y }, at) => {
      const mark = document.createElement("b");
      mark.className = "point";
      mark.textContent = at + 1;
      putAt(mark, x, y);
      $("compare").append(mark);
    });
    const line = name === "height" ? [...places.slice(0, 3), ...(places.length > 2 ? [places[0]] : [])] : places;
    $("lines").firstElementChild.setAttribute("points", line.map(({ x, y }) => `${x + 0.5},${y + 0.5}`).join(" "));
  }
  const clear = () => {
    places = [];
    show();
  };
  const take = (x, y) => {
    const tool = TOOLS[$("tool").value];
    if (!tool) return;
    const disparity = planes.disparity[y * width + x];
    if (tool.metric && !(depthOf(disparity) > 0)) {
      $("measured").textContent = `No depth is known at x ${x * stride}, y ${y * stride}: choose another point.`;
      return;
    }
    if (places.length === tool.count) places = places.slice(0, tool.kept);
    places.push({ x, y, disparity });
    show();
  };
  for (const kind of ["pointermove", "pointerdown"])
    $("profile").addEventListener(kind, (event) => {
      const box = $("profile").getBoundingClientRect();
      const at = Math.round(((event.clientX - box.left) / box.width) * (along.length - 1));
      if (along[at]) read(along[at].x, along[at].y, true);
    });
  $("tool").addEventListener("input", clear);
  $("clear").addEventListener("click", clear);
  return { take, show, clear };
}
