// The point cloud: rendered by WebGL, rotated by mouse, fingers and keys.
const VERTEX = `
attribute vec2 pixel; attribute float disparity; attribute vec4 look;
uniform mat4 view; uniform vec4 camera; uniform vec3 depth; uniform float size, cut;
varying vec3 color;
void main() {
  float z = depth.x / (disparity + depth.y);
  gl_Position = view * vec4((pixel - camera.zw) / camera.xy * z, z, 1.0);
  gl_PointSize = max(1.0, size * depth.z * z / gl_Position.w);
  if (look.a < cut || disparity + depth.y <= 0.0) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
  color = look.rgb;
}`;
const FRAGMENT = "precision mediump float; varying vec3 color; void main() { gl_FragColor = vec4(color, 1.0); }";
const MOST_POINTS = 1500000;

// Twelve bytes a point: pixel (2 x 16 bits), disparity (float), red, green, blue, confidence.
function pointsOf(planes) {
  const every = Math.ceil(Math.sqrt((width * height) / MOST_POINTS));
  const sheet = new OffscreenCanvas(width, height).getContext("2d");
  sheet.drawImage($("left"), 0, 0);
  const image = sheet.getImageData(0, 0, width, height).data;
  const data = new DataView(new ArrayBuffer(12 * Math.ceil(width / every) * Math.ceil(height / every)));
  let end = 0;
  for (let y = 0; y < height; y += every)
    for (let x = 0; x < width; x += every) {
      const at = y * width + x;
      if (planes.disparity[at] !== planes.disparity[at]) continue;
      data.setUint16(end, x * stride, true);
      data.setUint16(end + 2, y * stride, true);
      data.setFloat32(end + 4, planes.disparity[at], true);
      for (let c = 0; c < 3; c++) data.setUint8(end + 8 + c, image[4 * at + c]);
      data.setUint8(end + 11, planes.confidence ? planes.confidence[at] : 255);
      end += 12;
    }
  return { data: new Uint8Array(data.buffer, 0, end), count: end / 12, every };
}

function drawCloud(planes) {
  const canvas = $("cloud");
  const gl = canvas.getContext("webgl", { antialias: false, preserveDrawingBuffer: true });
  if (!gl) {
    $("points").textContent = "This browser has no WebGL, so the cloud cannot be drawn.";
    return;
  }
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  gl.useProgram(program);
  const points = pointsOf(planes);
  $("points").textContent = `${points.count.toLocaleString("en")} points.`;
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, points.data, gl.STATIC_DRAW);
  const attributes = [["pixel", 2, gl.UNSIGNED_SHORT, false, 0], ["disparity", 1, gl.FLOAT, false, 4], ["look", 4, gl.UNSIGNED_BYTE, true, 8]];
  for (const [name, size, type, normalized, offset] of attributes) {
    const place = gl.getAttribLocation(program, name);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, size, type, normalized, 12, offset);
  }
  gl.enable(gl.DEPTH_TEST);
  gl.clearColor(0.17, 0.18, 0.19, 1);
  const uniform = (name) => gl.getUniformLocation(program, name);
  const { focal_length: fx, focal_length_y: fy, baseline, offset } = camera;
  const middle = depthOf(facts.middle);
  const start = { yaw: 0.2, pitch: 0.1, distance: middle, x: 0, y: 0, roll: 0 };
  let pose = { ...start }, waiting = false;

  function draw() {
    waiting = false;
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
    canvas.height = Math.max(1, Math.round(canvas.clientHeight * devicePixelRatio));
    gl.viewport(0, 0, canvas.width, canvas.height);
    const across = (2 * fx) / (width * stride), up = (2 * fy) / (height * stride);
    const near = pose.distance / 100, far = pose.distance * 1000;
    const [cy, sy, cp, sp] = [Math.cos(pose.yaw), Math.sin(pose.yaw), Math.cos(pose.pitch), Math.sin(pose.pitch)];
    // Turned about the middle of the scene, (0, 0, middle); then `distance` away. Rows are axes of the eye.
    const turn = [[cy, 0, sy], [-sy * sp, cp, cy * sp], [-sy * cp, -sp, cy * cp]];
    const [cr, sr] = [Math.cos(pose.roll), Math.sin(pose.roll)];
    [turn[0], turn[1]] = [turn[0].map((v, i) => cr * v - sr * turn[1][i]), turn[0].map((v, i) => sr * v + cr * turn[1][i])];
    const eye = turn.map((row, axis) => [...row, -row[2] * middle + [pose.x, pose.y, pose.distance][axis]]);
    const ahead = (far + near) / (far - near), shift = (-2 * far * near) / (far - near);
    const rows = [eye[0].map((v) => v * across), eye[1].map((v) => -v * up), eye[2].map((v, i) => v * ahead + (i === 3 ? shift : 0)), eye[2]];
    gl.uniformMatrix4fv(uniform("view"), false, [0, 1, 2, 3].flatMap((column) => rows.map((row) => row[column])));
    gl.uniform4f(uniform("camera"), fx, fy, ...camera.principal);
    gl.uniform3f(uniform("depth"), fx * baseline, offset, (points.every * canvas.width) / width);
    gl.uniform1f(uniform("size"), Number($("size").value));
    gl.uniform1f(uniform("cut"), $("cut") ? Number($("cut").value) : 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    gl.drawArrays(gl.POINTS, 0, points.count);
  }
  const redraw = () => {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  };
  const turnBy = (x, y) => {
    pose.yaw += x;
    pose.pitch = Math.min(1.5, Math.max(-1.5, pose.pitch + y));
    redraw();
  };
  const nearer = (factor) => {
    pose.distance *= factor;
    redraw();
  };
  const moveBy = (x, y) => {
    const unit = (pose.distance * width * stride) / (canvas.clientWidth * fx);
    pose.x += x * unit;
    pose.y += y * unit;
    redraw();
  };
  // Where each finger (or the mouse) that is down was last. One turns; two move, zoom and roll.
  const fingers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY];
    const [x, y] = [now[0] - before[0], now[1] - before[1]];
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    fingers.set(event.pointerId, now);
    if (other) {
      const [was, is] = [before, now].map((at) => [at[0] - other[0], at[1] - other[1]]);
      pose.roll += Math.atan2(was[0] * is[1] - was[1] * is[0], was[0] * is[0] + was[1] * is[1]);
      nearer(Math.max(1, Math.hypot(...was)) / Math.max(1, Math.hypot(...is)));
      moveBy(x / 2, y / 2);
    } else if (event.shiftKey || event.buttons > 1) moveBy(x, y);
    else turnBy(-x / 200, y / 200);
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    nearer(Math.exp(event.deltaY / 1000));
  }, { passive: false });
  const moves = { ArrowLeft: [-20, 0], ArrowRight: [20, 0], ArrowUp: [0, -20], ArrowDown: [0, 20] };
  const reset = () => {
    pose = { ...start };
    redraw();
  };
  const keys = { ArrowLeft: () => turnBy(0.05, 0), ArrowRight: () => turnBy(-0.05, 0), ArrowUp: () => turnBy(0, -0.05), ArrowDown: () => turnBy(0, 0.05), "+": () => nearer(0.9), "=": () => nearer(0.9), "-": () => nearer(1 / 0.9), Home: reset };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    if (event.shiftKey && moves[event.key]) moveBy(...moves[event.key]);
    else keys[event.key]();
  });
  $("reset").addEventListener("click", reset);
  $("size").addEventListener("input", redraw);
  $("cut")?.addEventListener("input", () => {
    $("cut-value").textContent = Number($("cut").value).toFixed(2);
    redraw();
  });
  addEventListener("resize", redraw);
  draw();
}
