/* Debian builds the 128-bit division of compiler-rt for wasm with stack protection, and its wasi-libc has none to offer.
 * Linked into build/tally-core.wasm alone; a page has no attacker between two of its own frames, so the guard is fixed. */
#include <stdint.h>

extern uintptr_t __stack_chk_guard;
void __stack_chk_fail(void);

uintptr_t __stack_chk_guard = 0x7a11cafe;

void __stack_chk_fail(void) {
    __builtin_trap();
}
