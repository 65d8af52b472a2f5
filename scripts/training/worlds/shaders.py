"""Shaders of rendered worlds: light on surfaces in linear colours, and the depth of each pixel."""

VERTEX = """#version 330
in vec3 position, colour, normal;
in vec2 uv;
uniform mat4 projection, placement;
invariant gl_Position;
out vec3 place, shade, outward;
out vec2 at;
void main() {
    place = (placement * vec4(position, 1)).xyz;
    outward = mat3(placement) * normal;
    shade = colour;
    at = uv;
    gl_Position = projection * vec4(place, 1);
}"""

DEPTH = """#version 330
in vec2 at;
uniform sampler2D image;
uniform float cutoff, bias;
out float depth;
void main() {
    if (cutoff > 0 && texture(image, at, bias).a < cutoff) discard;
    depth = 1 / gl_FragCoord.w;
}"""

# The surroundings are a photograph on a sphere of finite radius, so that reflections have a disparity.
LIGHT = """#version 330
uniform vec3 sun, sunlight, zenith, ground;
uniform sampler2D surroundings;
vec3 to_linear(vec3 c) { return c * (c * (c * 0.305306 + 0.682171) + 0.012523); }
vec3 look(vec3 way, float blur) {
    vec3 photo = to_linear(textureLod(surroundings, 0.5 + 0.5 * way.xz / (1 + abs(way.y)), blur).rgb);
    return photo * mix(ground, zenith, smoothstep(-0.2, 0.25, way.y));
}
vec3 shine(vec3 way, float roughness) {
    float sharp = exp2(10 - 8 * roughness);
    return sunlight * min((sharp + 2) / 8, 40) * pow(max(dot(way, sun), 0), sharp);
}"""

SURFACE = (
    LIGHT
    + """
in vec3 place, shade, outward;
in vec2 at;
uniform sampler2D image;
uniform float reflectance, roughness, opacity, ripple, wetness, ambient, haze, radius;
uniform vec3 tint, eye, centre, fog, lamplight;
uniform vec3 lamps[3];
out vec4 result;
void main() {
    vec4 texel = texture(image, at, -1.);
    vec3 view = place - eye;
    float distance = length(view);
    view /= distance;
    vec3 normal = dot(outward, outward) < 0.1 ? cross(dFdx(place), dFdy(place)) : outward;
    normal = normalize(normal);
    if (ripple > 0) {
        vec2 wave = sin(2.1 * place.xz + 1.3 * place.zx + vec2(0, 2)) + sin(5.3 * place.zx - 3.1 * place.xz);
        normal = normalize(normal + ripple * vec3(wave.x, 0, wave.y));
    }
    if (dot(normal, view) > 0) normal = -normal;
    vec3 albedo = to_linear(texel.rgb) * to_linear(shade) * tint;
    float mirror = reflectance, rough = roughness;
    if (wetness > 0 && normal.y > 0.8) {
        vec2 spot = sin(0.43 * place.xz + 2 * sin(0.29 * place.zx)) + 0.4 * sin(1.9 * place.xz + place.zx);
        float wet = smoothstep(0.6 - 2 * wetness, 1 - 2 * wetness, spot.x + spot.y);
        albedo *= 1 - 0.6 * wet;
        mirror = mix(mirror, max(mirror, 0.03), wet);
        rough = mix(rough, 0.05, wet);
    }
    vec3 light = ambient * zenith * (0.7 + 0.3 * normal.y) + sunlight * max(dot(normal, sun), 0);
    bool lit = lamplight.r > 0;
    for (int i = 0; lit && i < 3; i++) {
        vec3 lamp = lamps[i] - place;
        light += lamplight * max(dot(normal, normalize(lamp)), 0.1) / (1 + dot(lamp, lamp));
    }
    vec3 colour = albedo * light * opacity;
    float share = opacity;
    if (mirror > 0) {
        float grazing = clamp(1 + dot(view, normal), 0, 1);
        float fresnel = mirror + (1 - mirror) * pow(grazing, 5) * (1 - 0.7 * rough);
        vec3 way = reflect(view, normal), from = place - centre;
        float inside = radius * radius - dot(from, from), along = dot(from, way);
        vec3 hit = inside > 0 ? normalize(from + way * (sqrt(along * along + inside) - along)) : way;
        vec3 mirrored = look(hit, 7 * rough) + shine(way, rough);
        for (int i = 0; lit && i < 3; i++) {
            float sharp = exp2(10 - 8 * rough);
            vec3 lamp = lamps[i] - place;
            mirrored += lamplight * pow(max(dot(way, normalize(lamp)), 0), sharp) / (1 + dot(lamp, lamp));
        }
        colour = mix(colour, mirrored, fresnel);
        share = mix(share, 1, fresnel);
    }
    float clear = exp(-haze * distance);
    result = vec4(mix(fog * share, colour, clear), share);
}"""
)

SKY_VERTEX = """#version 330
in vec2 corner;
out vec2 at;
void main() { at = corner; gl_Position = vec4(corner, 0.9999999, 1); }"""

SKY = (
    LIGHT
    + """
in vec2 at;
uniform vec2 extent;
uniform mat3 axes;
uniform vec3 fog;
uniform float cloudy;
out vec4 result;
void main() {
    vec3 way = normalize(axes * vec3(at * extent, 1));
    vec3 sky = mix(zenith, look(way, 1), cloudy);
    result = vec4(mix(fog, sky, smoothstep(-0.05, 0.4, way.y)) + shine(way, 0), 1);
}"""
)
