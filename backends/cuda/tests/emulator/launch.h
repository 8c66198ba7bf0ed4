// Appended to the kernel: runs it.
static thread_local const Args* arguments;

static void body() {
    kernel(*arguments);
    fibers[current].done = true;
    _longjmp(scheduler, 1);
}

extern "C" unsigned long long emulated_size() { return sizeof(Args); }

extern "C" void emulated_launch(const void* args, unsigned int blocks, unsigned int threads, int waits) {
    arguments = (const Args*)args;
    gridDim.x = blocks;
    blockDim.x = threads;
    if (!waits) {
        fibers = 0;
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
            for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel(*arguments);
        return;
    }
    const unsigned long stack = 64 << 10;
    Fiber* all = (Fiber*)calloc(threads, sizeof(Fiber));
    for (unsigned int i = 0; i < threads; ++i) all[i].stack = (char*)malloc(stack);
    fibers = all;
    for (unsigned int b = 0; b < blocks; ++b) {
        blockIdx.x = b;
        for (unsigned int i = 0; i < threads; ++i) all[i].begun = all[i].done = false;
        for (volatile bool more = true; more;) {
            more = false;
            for (volatile unsigned int i = 0; i < threads; ++i) {
                if (all[i].done) continue;
                current = i;
                threadIdx.x = i;
                if (_setjmp(scheduler) == 0) {
                    if (all[i].begun) _longjmp(all[i].place, 1);
                    all[i].begun = true;
                    getcontext(&all[i].start);
                    all[i].start.uc_stack.ss_sp = all[i].stack;
                    all[i].start.uc_stack.ss_size = stack;
                    all[i].start.uc_link = 0;
                    makecontext(&all[i].start, body, 0);
                    setcontext(&all[i].start);
                }
                if (!all[i].done) more = true;
            }
        }
    }
    for (unsigned int i = 0; i < threads; ++i) free(all[i].stack);
    free(all);
    fibers = 0;
}
