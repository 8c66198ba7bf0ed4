// Elements selected by an index. MODE 0: gather, 1: scatter, 2: scatter_add. An index outside its axis is reported in
// `status`, and moves nothing.
typedef Number<T>::C C;

struct Args {
    T* data;
    const i64* index;
    T* other;
    i64* status;
    u64 count;
    i64 extent, axis_stride, dims[RANK], data_strides[RANK], index_strides[RANK], other_strides[RANK];
};

#if MODE == 2
static __device__ __forceinline__ void add(f32* to, f32 x) { atomicAdd(to, x); }
static __device__ __forceinline__ void add(f64* to, f64 x) { atomicAdd(to, x); }
static __device__ __forceinline__ void add(i32* to, i32 x) { atomicAdd(to, x); }
static __device__ __forceinline__ void add(i64* to, i64 x) { atomicAdd((u64*)to, (u64)x); }
static __device__ __forceinline__ void add(u8* to, u8 x) {
    // Allocations are multiples of 256 bytes, so the whole word around a byte is accessible.
    u32* word = (u32*)((u64)to & ~(u64)3);
    const u32 shift = (u32)((u64)to & 3) * 8;
    u32 seen = *word, wanted;
    do {
        wanted = seen;
        const u32 sum = ((wanted >> shift) + x) & 255;
        seen = atomicCAS(word, wanted, (wanted & ~(255u << shift)) | sum << shift);
    } while (seen != wanted);
}
#endif

extern "C" __global__ void __launch_bounds__(BLOCK) kernel(const Args args) {
    const u64 i = FIRST;
    if (i >= args.count) return;
    const i64 index = args.index[place<RANK>(i, args.dims, args.index_strides)];
    if (index < 0 || index >= args.extent) {
        if (atomicCAS((u64*)args.status, 0ull, 1ull) == 0) {
            args.status[1] = index;
            args.status[2] = args.extent;
        }
        return;
    }
    T* data = args.data + place<RANK>(i, args.dims, args.data_strides) + index * args.axis_stride;
    T* other = args.other + place<RANK>(i, args.dims, args.other_strides);
#if MODE == 0
    *other = *data;
#elif MODE == 1
    *data = *other;
#else
    add(data, *other);
#endif
}
