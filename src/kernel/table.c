/* kernel/table.c: which table this machine gets. */
#include "kernel/table.h"

#include <stdlib.h>
#include <string.h>

#include "kernel/engine.h"

#if defined(__x86_64__) && !defined(TL_PORTABLE_ONLY)
#define TL_HAVE_X86 1
#elif defined(__aarch64__) && !defined(TL_PORTABLE_ONLY)
#define TL_HAVE_NEON 1
#endif

typedef struct candidate {
    const tl_kernels *table;
    bool available;
} candidate;

/* best first; returns how many */
static int candidates(candidate found[3]) {
    int n = 0;
#ifdef TL_HAVE_X86
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    found[n++] = (candidate){&tl_kernels_table_avx512, avx512};
    found[n++] = (candidate){&tl_kernels_table_avx2, avx2};
#endif
#ifdef TL_HAVE_NEON
    found[n++] = (candidate){&tl_kernels_table_neon, true}; /* part of every 64-bit ARM processor */
#endif
    found[n++] = (candidate){&tl_kernels_table_portable, true};
    return n;
}

const tl_kernels *tl_kernels_portable(void) { return &tl_kernels_table_portable; }

const tl_kernels *tl_kernels_for_cpu(const char *isa_or_null, tl_error *error) {
    const char *wanted = isa_or_null ? isa_or_null : getenv("TALLY_ISA");
    candidate found[3];
    int n = candidates(found), known = -1;
    char have[64] = "";
    for (int i = 0; i < n; i++) {
        if (wanted && strcmp(found[i].table->name, wanted) == 0)
            known = i;
        if (!found[i].available)
            continue;
        if (!wanted || *wanted == '\0' || known == i)
            return found[i].table;
        size_t used = strlen(have);
        const char *name = found[i].table->name;
        if (used + strlen(name) + 3 < sizeof have) {
            memcpy(have + used, used ? ", " : "", used ? 2 : 0);
            memcpy(have + used + (used ? 2 : 0), name, strlen(name) + 1);
        }
    }
    if (known >= 0)
        tl_fail(error, TL_ERR_UNSUPPORTED,
                "instruction set '%s' (TALLY_ISA): this processor does not have it; it has %s", wanted, have);
    else
        tl_fail(error, TL_ERR_NOT_FOUND, "instruction set '%s' (TALLY_ISA): unknown; this processor has %s", wanted,
                have);
    return NULL;
}
