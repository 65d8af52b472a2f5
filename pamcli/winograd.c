/* Winograd's convolution F(4x4, 3x3): 36 multiplications take the place of 144.

Four rows and columns of a result are made from six of what is read. Both are brought to 36 numbers a channel,
between which a 3x3 convolution is a product of matrices. How they are brought there and back is from Lavin
and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.

In memory the channels of a pixel lie side by side; TOGETHER of them are computed at a time, as many as the
processor's registers hold: 16 with AVX-512, 8 with AVX2. */

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

#define ROWS 6                        /* tiles whose products with the weights are made at a time, and */
#define WIDE (TOGETHER == 16 ? 4 : 2) /* how many times TOGETHER channels: what the registers hold */

typedef float numbers __attribute__((vector_size(4 * TOGETHER), aligned(4)));
typedef int masks __attribute__((vector_size(4 * TOGETHER), aligned(4)));

/* A map to be made, in tiles of 4x4 pixels. Lengths are counted in float32 numbers. */
typedef struct {
    const float *x, *weight, *bias; /* weight: (36, x_channels, made_channels) */
    const float *nothing;           /* a zero for each channel of x: what lies beyond its edges */
    float *y, *room;                /* room: `room_size` for each thread */
    long room_size, x_row, x_pixel, y_row, y_pixel;
    long x_height, x_width, y_height, y_width;
    long x_channels, y_channels, made_channels; /* made: those of y, up to a multiple of 16 */
    long first_row, first_column;          /* where the first tile begins to read; -1 is in the padding */
    long tiles, tile_columns, block;       /* a block of so many tiles is made at a time */
    long adds;                             /* the result is added to what y holds */
    float slope;                           /* of the rectifier: 1 for none */
    int (*thread)(void), (*threads)(void); /* which of how many threads runs; none: it is alone */
} Map;

long size_of_map(void) { return sizeof(Map); }

INLINE void six_of_six(numbers *to, const numbers *from, long step) {
    numbers a = from[0], b = from[step], c = from[2 * step], d = from[3 * step], e = from[4 * step];
    numbers f = from[5 * step], p = e - 4 * c, q = d - 4 * b, r = e - c, s = 2 * (d - b);
    to[0] = 4 * a - 5 * c + e;
    to[1] = p + q;
    to[2] = p - q;
    to[3] = r + s;
    to[4] = r - s;
    to[5] = 4 * b - 5 * d + f;
}

INLINE void four_of_six(numbers *to, const numbers *from, long step) {
    numbers b = from[step], c = from[2 * step], d = from[3 * step], e = from[4 * step];
    numbers p = b + c, q = b - c, r = d + e, s = d - e;
    to[0] = from[0] + p + r;
    to[1] = q + 2 * s;
    to[2] = p + 4 * r;
    to[3] = q + 8 * s + from[5 * step];
}

/* What `four_of_six` does, transposed. */
INLINE void six_of_four(numbers *to, const numbers *from, long step) {
    numbers a = from[0], b = from[step], c = from[2 * step], d = from[3 * step];
    numbers p = a + c, q = b + d, r = a + 4 * c, s = 2 * b + 8 * d;
    to[0] = a;
    to[1] = p + q;
    to[2] = p - q;
    to[3] = r + s;
    to[4] = r - s;
    to[5] = d;
}

/* Brings what one tile reads to the numbers between which the convolution is a product. */
INLINE void bring(const Map *map, long tile, float *to, long apart) {
    long top = map->first_row + tile / map->tile_columns * 4;
    long side = map->first_column + tile % map->tile_columns * 4;
    const float *pixels[6][6];
    for (int row = 0; row < 6; row++)
        for (int column = 0; column < 6; column++) {
            long y = top + row, x = side + column;
            int inside = y >= 0 && y < map->x_height && x >= 0 && x < map->x_width;
            pixels[column][row] = inside ? map->x + y * map->x_row + x * map->x_pixel : map->nothing;
        }
    for (long channel = 0; channel < map->x_channels; channel += TOGETHER) {
        numbers read[6], columns[6][6], six[6];
        for (int column = 0; column < 6; column++) {
            for (int row = 0; row < 6; row++) read[row] = *(const numbers *)(pixels[column][row] + channel);
            six_of_six(columns[column], read, 1);
        }
        for (int row = 0; row < 6; row++) {
            six_of_six(six, &columns[0][row], 6);
            for (int column = 0; column < 6; column++)
                *(numbers *)(to + (6 * row + column) * apart + channel) = six[column];
        }
    }
}

/* Makes `rows` x `wide` TOGETHER numbers of a product of matrices, or adds them to what is there. In a it is
 * `down` numbers from a row to the next, `along` from one of the `inner` that are summed over to the next. */
INLINE void multiply(
    const float *a, long down, long along, const float *b, float *to, long inner, long across,
    const int rows, const int wide, const int adding
) {
    numbers sums[ROWS][4] = {0}, read[4];
    for (long i = 0; i < inner; i++) {
#pragma GCC unroll 4
        for (int n = 0; n < wide; n++) read[n] = *(const numbers *)(b + i * across + n * TOGETHER);
#pragma GCC unroll 6
        for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
            for (int n = 0; n < wide; n++) sums[row][n] += a[row * down + i * along] * read[n];
    }
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int n = 0; n < wide; n++) {
            numbers *place = (numbers *)(to + row * across + n * TOGETHER);
            *place = adding ? *place + sums[row][n] : sums[row][n];
        }
}

/* Makes pixels of the result of what the products of one tile are, with bias and leaky rectifier. */
INLINE void finish(const Map *map, long tile, const float *from, long apart) {
    long top = tile / map->tile_columns * 4, side = tile % map->tile_columns * 4;
    for (long channel = 0; channel < map->y_channels; channel += TOGETHER) {
        numbers read[6], columns[6][4], four[4], bias = *(const numbers *)(map->bias + channel);
        for (int column = 0; column < 6; column++) {
            for (int row = 0; row < 6; row++)
                read[row] = *(const numbers *)(from + (6 * row + column) * apart + channel);
            four_of_six(columns[column], read, 1);
        }
        long rest = map->y_channels - channel;
        for (int row = 0; row < 4 && top + row < map->y_height; row++) {
            four_of_six(four, &columns[0][row], 4);
            float *to = map->y + (top + row) * map->y_row + side * map->y_pixel + channel;
            for (int column = 0; column < 4 && side + column < map->y_width; column++) {
                numbers value = four[column] + bias, before = {0};
                if (map->adds) {
                    memcpy(&before, to, 4 * (rest >= TOGETHER ? TOGETHER : rest));
                    value += before;
                }
                numbers below = value * map->slope;
                masks positive = value > 0;
                value = (numbers)((positive & (masks)value) | (~positive & (masks)below));
                if (rest >= TOGETHER)
                    *(numbers *)to = value;
                else
                    memcpy(to, &value, 4 * rest);
                to += map->y_pixel;
            }
        }
    }
}

/* Brings the gradient of what one tile made to the numbers by which the weights' gradient is a product. */
INLINE void bring_gradient(const Map *map, long tile, float *to, long apart) {
    long top = tile / map->tile_columns * 4, side = tile % map->tile_columns * 4;
    const numbers nothing = {0};
    for (long channel = 0; channel < map->y_channels; channel += TOGETHER) {
        numbers read[4], columns[4][6], six[6];
        for (int column = 0; column < 4; column++) {
            for (int row = 0; row < 4; row++) {
                long y = top + row, x = side + column;
                const float *from = map->y + y * map->y_row + x * map->y_pixel + channel;
                read[row] = y < map->y_height && x < map->y_width ? *(const numbers *)from : nothing;
            }
            six_of_four(columns[column], read, 1);
        }
        for (int row = 0; row < 6; row++) {
            six_of_four(six, &columns[0][row], 6);
            for (int column = 0; column < 6; column++)
                *(numbers *)(to + (6 * row + column) * apart + channel) = six[column];
        }
    }
}

/* Adds a product of matrices, the first one transposed: all channels of x and `wide` TOGETHER of y. */
INLINE void add_products(
    const float *a, const float *b, float *to, long tiles, long inner, long across, const int wide
) {
    long row = 0;
    for (; row + ROWS <= inner; row += ROWS)
        multiply(a + row, 1, inner, b, to + row * across, tiles, across, ROWS, wide, 1);
    for (; row < inner; row += 2)
        multiply(a + row, 1, inner, b, to + row * across, tiles, across, 2, wide, 1);
}

/* Adds this thread's share of the gradient of the weights, (36, x_channels, y_channels) at the beginning of
 * its room; y is the gradient of the map. */
void add_gradient(const Map *map) {
    long thread = map->thread ? map->thread() : 0, threads = map->threads ? map->threads() : 1;
    long inner = map->x_channels, across = map->y_channels, block = map->block;
    long blocks = (map->tiles + block - 1) / block;
    float *sums = map->room + thread * map->room_size, *brought = sums + 36 * inner * across;
    float *gradient = brought + 36 * block * inner;
    for (long each = blocks * thread / threads; each < blocks * (thread + 1) / threads; each++) {
        long first = each * block, count = map->tiles - first < block ? map->tiles - first : block;
        for (long tile = 0; tile < count; tile++) {
            bring(map, first + tile, brought + tile * inner, block * inner);
            bring_gradient(map, first + tile, gradient + tile * across, block * across);
        }
        for (long place = 0; place < 36; place++)
            for (long n = 0; n < across; n += WIDE * TOGETHER) {
                const float *a = brought + place * block * inner, *b = gradient + place * block * across + n;
                float *to = sums + place * inner * across + n;
                long left = (across - n) / TOGETHER;
                if (left >= WIDE)
                    add_products(a, b, to, count, inner, across, WIDE);
                else if (left == 3)
                    add_products(a, b, to, count, inner, across, 3);
                else if (left == 2)
                    add_products(a, b, to, count, inner, across, 2);
                else
                    add_products(a, b, to, count, inner, across, 1);
            }
    }
}

/* Makes this thread's share of the map. */
void make_map(const Map *map) {
    long thread = map->thread ? map->thread() : 0, threads = map->threads ? map->threads() : 1;
    long inner = map->x_channels, across = map->made_channels, block = map->block;
    long blocks = (map->tiles + block - 1) / block;
    float *brought = map->room + thread * map->room_size, *made = brought + 36 * block * inner;
    for (long each = blocks * thread / threads; each < blocks * (thread + 1) / threads; each++) {
        long first = each * block, count = map->tiles - first < block ? map->tiles - first : block;
        for (long tile = 0; tile < count; tile++)
            bring(map, first + tile, brought + tile * inner, block * inner);
        for (long place = 0; place < 36; place++)
            for (long n = 0; n < across; n += WIDE * TOGETHER) {
                const float *weight = map->weight + place * inner * across + n;
                long left = (across - n) / TOGETHER;
                for (long row = 0; row < count; row += ROWS) {
                    const float *a = brought + (place * block + row) * inner;
                    float *to = made + (place * block + row) * across + n;
                    if (left >= WIDE)
                        multiply(a, inner, 1, weight, to, inner, across, ROWS, WIDE, 0);
                    else if (left == 3)
                        multiply(a, inner, 1, weight, to, inner, across, ROWS, 3, 0);
                    else if (left == 2)
                        multiply(a, inner, 1, weight, to, inner, across, ROWS, 2, 0);
                    else
                        multiply(a, inner, 1, weight, to, inner, across, ROWS, 1, 0);
                }
            }
        for (long tile = 0; tile < count; tile++)
            finish(map, first + tile, made + tile * across, block * across);
    }
}
