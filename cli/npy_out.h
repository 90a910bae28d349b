/* cli/npy_out.h: NumPy's files, for tally inspect. */
#ifndef CLI_NPY_OUT_H
#define CLI_NPY_OUT_H

#include "verb.h"

/* Header and values of a .npy, the members of an .npz. `as` is NULL or the format whose bits they hold. Exit status. */
int tl_npy_report(const tl_cli *cli, const char *path, const char *as, int64_t bytes);
int tl_npz_report(const tl_cli *cli, const char *path, const char *as, int64_t bytes);
/* Is this zip archive an .npz? PyTorch's checkpoints are zip archives too. */
bool tl_is_npz(const char *path);

#endif
