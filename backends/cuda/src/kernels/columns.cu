// The windows of images as columns of a matrix: a row for each channel and tap, a column for each image and position of
// the window. GATHER 0 copies images to columns; 1 sums up, for each element of the images, all its copies in the
// columns.
typedef Number<T>::C C;

struct Args {
    T* images;
    void* columns;
    i64 count, channels, height, width, kernel_h, kernel_w, out_height, out_width;
    i64 stride_h, stride_w, pad_h, pad_w, step_h, step_w;
};

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    const i64 i = (i64)FIRST;
    const i64 columns = args.count * args.out_height * args.out_width;
#if GATHER == 0
    // A thread copies a window's whole channel, since finding the window takes divisions.
    if (i >= args.channels * columns) return;
    const i64 channel = (u64)i / (u64)columns, column = i - channel * columns;
    const i64 line = (u64)column / (u64)args.out_width, out_x = column - line * args.out_width;
    const i64 image = (u64)line / (u64)args.out_height, out_y = line - image * args.out_height;
    const T* plane = args.images + (image * args.channels + channel) * args.height * args.width;
    T* to = (T*)args.columns + channel * args.kernel_h * args.kernel_w * columns + column;
    for (i64 tap_y = 0; tap_y < args.kernel_h; ++tap_y) {
        const i64 y = out_y * args.stride_h - args.pad_h + tap_y * args.step_h;
        for (i64 tap_x = 0; tap_x < args.kernel_w; ++tap_x, to += columns) {
            const i64 x = out_x * args.stride_w - args.pad_w + tap_x * args.step_w;
            const bool inside = y >= 0 && y < args.height && x >= 0 && x < args.width;
            *to = inside ? plane[y * args.width + x] : Number<T>::put(0);
        }
    }
#else
    if (i >= args.count * args.channels * args.height * args.width) return;
    const i64 line = (u64)i / (u64)args.width, x = i - line * args.width;
    const i64 plane = (u64)line / (u64)args.height, y = line - plane * args.height;
    const i64 image = (u64)plane / (u64)args.channels, channel = plane - image * args.channels;
    C sum = 0;
    for (i64 tap_y = 0; tap_y < args.kernel_h; ++tap_y) {
        const i64 from_y = y + args.pad_h - tap_y * args.step_h;
        if (from_y < 0) continue;
        const i64 out_y = args.stride_h == 1 ? from_y : (u64)from_y / (u64)args.stride_h;
        if (out_y * args.stride_h != from_y || out_y >= args.out_height) continue;
        for (i64 tap_x = 0; tap_x < args.kernel_w; ++tap_x) {
            const i64 from_x = x + args.pad_w - tap_x * args.step_w;
            if (from_x < 0) continue;
            const i64 out_x = args.stride_w == 1 ? from_x : (u64)from_x / (u64)args.stride_w;
            if (out_x * args.stride_w != from_x || out_x >= args.out_width) continue;
            const i64 row = (channel * args.kernel_h + tap_y) * args.kernel_w + tap_x;
            sum += ((const C*)args.columns)[row * columns + (image * args.out_height + out_y) * args.out_width + out_x];
        }
    }
    args.images[i] = Number<T>::put(sum);
#endif
}
