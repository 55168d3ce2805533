// Executes one instruction of each instruction set that the compiler was told it may use. The processor kills it (SIGILL) where one is
// advertised but not runnable, as virtual machines are known to do with AVX-512 extensions and AMX.
//
// Compiled twice: with the flags of one feature, to find out at build time whether to use it; and with the flags of all that are used,
// to be run at every first start, since a wheel or a virtual machine may have moved to a lesser processor.
//
// Says "ok" when it is through, since an exit status can get lost where a program ignores its children's end.
//
// Inline assembly, because a compiler may drop or replace an intrinsic whose result nobody needs.

#include <unistd.h>

#if defined(__x86_64__)
#define RUN(instruction) __asm__ volatile(instruction ::: "xmm0", "rax", "memory")
#else
#define RUN(instruction) (void)0
#endif

int main(void) {
#ifdef __SSE4_2__
    RUN("pcmpgtq %%xmm0, %%xmm0");
#endif
#ifdef __BMI2__
    RUN("pdep %%eax, %%eax, %%eax");
#endif
#ifdef __AVX__
    RUN("vaddps %%ymm0, %%ymm0, %%ymm0");
#endif
#ifdef __F16C__
    RUN("vcvtph2ps %%xmm0, %%ymm0");
#endif
#ifdef __FMA__
    RUN("vfmadd132ps %%ymm0, %%ymm0, %%ymm0");
#endif
#ifdef __AVX2__
    RUN("vpaddd %%ymm0, %%ymm0, %%ymm0");
#endif
#ifdef __AVXVNNI__
    RUN("%{vex%} vpdpbusd %%ymm0, %%ymm0, %%ymm0");
#endif
#ifdef __AVX512F__
    RUN("vpaddd %%zmm0, %%zmm0, %%zmm0");
#endif
#ifdef __AVX512CD__
    RUN("vpconflictd %%zmm0, %%zmm0");
#endif
#ifdef __AVX512VL__
    RUN("vprold $1, %%ymm0, %%ymm0");
#endif
#ifdef __AVX512DQ__
    RUN("vpmullq %%zmm0, %%zmm0, %%zmm0");
#endif
#ifdef __AVX512BW__
    RUN("vpaddb %%zmm0, %%zmm0, %%zmm0");
#endif
#ifdef __AVX512VBMI__
    RUN("vpermb %%zmm0, %%zmm0, %%zmm0");
#endif
#ifdef __AVX512VNNI__
    RUN("vpdpbusd %%zmm0, %%zmm0, %%zmm0");
#endif
#ifdef __AVX512BF16__
    RUN("vdpbf16ps %%zmm0, %%zmm0, %%zmm0");
#endif
    return write(STDOUT_FILENO, "ok", 2) == 2 ? 0 : 1;
}
