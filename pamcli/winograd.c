/* What stands around the products of matrices in Winograd's convolution F(4x4, 3x3).

Four rows and columns of a result are made from six of what is read. Both are brought to 36 numbers a channel,
between which a 3x3 convolution is a product of matrices: 36 multiplications take the place of 144. How they
are brought there and back is from Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015.

In memory the channels of a pixel lie side by side; 16 of them are computed at a time. */

#include <string.h>

#define TOGETHER 16

typedef float numbers __attribute__((vector_size(4 * TOGETHER), aligned(4)));
typedef int masks __attribute__((vector_size(4 * TOGETHER), aligned(4)));

#if defined(__x86_64__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

/* A strip of one map: `tiles` of 4x4 pixels of its result, `tile_columns` of them side by side. */
typedef struct {
    const float *x, *bias, *nothing; /* what is read; bias of each channel made; a zero for each channel read */
    float *brought, *made, *y; /* (36, tiles, channels) of what is read and of what is made; the result */
    long x_row, x_pixel, y_row, y_pixel; /* how far apart they lie, in numbers */
    long x_height, x_width, y_height, y_width;
    long x_channels, y_channels, made_channels; /* made: those of y, up to a multiple of 16 */
    long tiles, tile_columns;
    long first_row, first_column; /* where the first tile begins to read; -1 is in the padding */
    float slope;                  /* of the rectifier: 1 for none */
    int (*thread)(void), (*threads)(void); /* which of how many threads runs; none: it is alone */
} Strip;

long size_of_strip(void) { return sizeof(Strip); }

INLINE void share(const Strip *strip, long *first, long *last) {
    long thread = strip->thread ? strip->thread() : 0, threads = strip->threads ? strip->threads() : 1;
    *first = strip->tiles * thread / threads;
    *last = strip->tiles * (thread + 1) / threads;
}

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

/* Brings x to the numbers between which the convolution is a product. */
FOR_EACH_PROCESSOR void bring(const Strip *strip) {
    long first, last, apart = strip->tiles * strip->x_channels;
    share(strip, &first, &last);
    for (long tile = first; tile < last; tile++) {
        long top = strip->first_row + tile / strip->tile_columns * 4;
        long side = strip->first_column + tile % strip->tile_columns * 4;
        const float *pixels[6][6];
        for (int row = 0; row < 6; row++)
            for (int column = 0; column < 6; column++) {
                long y = top + row, x = side + column;
                int inside = y >= 0 && y < strip->x_height && x >= 0 && x < strip->x_width;
                const float *pixel = strip->x + y * strip->x_row + x * strip->x_pixel;
                pixels[column][row] = inside ? pixel : strip->nothing;
            }
        for (long channel = 0; channel < strip->x_channels; channel += TOGETHER) {
            numbers read[6], columns[6][6], six[6];
            for (int column = 0; column < 6; column++) {
                for (int row = 0; row < 6; row++)
                    read[row] = *(const numbers *)(pixels[column][row] + channel);
                six_of_six(columns[column], read, 1);
            }
            float *to = strip->brought + tile * strip->x_channels + channel;
            for (int row = 0; row < 6; row++) {
                six_of_six(six, &columns[0][row], 6);
                for (int column = 0; column < 6; column++)
                    *(numbers *)(to + (6 * row + column) * apart) = six[column];
            }
        }
    }
}

/* Makes the result of what the products are, with bias and leaky rectifier. */
FOR_EACH_PROCESSOR void finish(const Strip *strip) {
    long first, last, apart = strip->tiles * strip->made_channels;
    share(strip, &first, &last);
    for (long tile = first; tile < last; tile++) {
        long top = tile / strip->tile_columns * 4, side = tile % strip->tile_columns * 4;
        for (long channel = 0; channel < strip->y_channels; channel += TOGETHER) {
            const float *from = strip->made + tile * strip->made_channels + channel;
            numbers read[6], columns[6][4], four[4], bias = *(const numbers *)(strip->bias + channel);
            for (int column = 0; column < 6; column++) {
                for (int row = 0; row < 6; row++)
                    read[row] = *(const numbers *)(from + (6 * row + column) * apart);
                four_of_six(columns[column], read, 1);
            }
            long rest = strip->y_channels - channel;
            for (int row = 0; row < 4 && top + row < strip->y_height; row++) {
                four_of_six(four, &columns[0][row], 4);
                float *to = strip->y + (top + row) * strip->y_row + side * strip->y_pixel + channel;
                for (int column = 0; column < 4 && side + column < strip->y_width; column++) {
                    numbers value = four[column] + bias, below = value * strip->slope;
                    masks positive = value > 0;
                    value = (numbers)((positive & (masks)value) | (~positive & (masks)below));
                    if (rest >= TOGETHER)
                        *(numbers *)to = value;
                    else
                        memcpy(to, &value, 4 * rest);
                    to += strip->y_pixel;
                }
            }
        }
    }
}
