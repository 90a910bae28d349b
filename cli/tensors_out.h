/* cli/tensors_out.h: tally inspect of files of named tensors: safetensors, alone or in shards, and checkpoints. */
#ifndef CLI_TENSORS_OUT_H
#define CLI_TENSORS_OUT_H

#include "verb.h"

/* Whether there is something of the kind at `path`: a file that starts with head[0 … length − 1], or a folder, and then
 * `inside` (of `size` bytes) becomes what to report on: of a run's folder its latest checkpoint. */
bool tl_is_tensors(const char *path, bool is_folder, const unsigned char *head, size_t length, char *inside,
                   size_t size);
/* `verify`: every value of a checkpoint against its checksum. `all`: every tensor has a row of its own. */
int tl_tensors_report(const tl_cli *cli, const char *path, bool verify, bool all);

#endif
