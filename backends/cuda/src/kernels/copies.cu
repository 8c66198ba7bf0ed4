// Copies between ranges that do not overlap, with `parts` blocks per copy.
struct alignas(16) Sixteen { u64 low, high; };

struct Args {
    u64 to[COUNT], from[COUNT], bytes[COUNT];
    u64 parts;
};

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    const u64 copy = blockIdx.x / args.parts, part = blockIdx.x - copy * args.parts;
    const u64 to = args.to[copy], from = args.from[copy], bytes = args.bytes[copy];
    const u64 first = part * BLOCK + threadIdx.x, step = args.parts * BLOCK;
    const u64 wide = ((to | from) & 15) == 0 ? bytes / 16 : 0;
    for (u64 i = first; i < wide; i += step) ((Sixteen*)to)[i] = ((const Sixteen*)from)[i];
    for (u64 i = wide * 16 + first; i < bytes; i += step) ((u8*)to)[i] = ((const u8*)from)[i];
}
