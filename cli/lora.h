/* cli/lora.h: finetuning with adapters, from the command line. */
#ifndef CLI_LORA_H
#define CLI_LORA_H

#include "tally/lora.h"
#include "verb.h"

/* The options' texts as typed; NULL or "": not given. */
typedef struct tl_lora_texts {
    const char *rank, *quantized_rank, *alpha, *dropout, *targets, *base, *trained;
} tl_lora_texts;
/* Checked but for the targets' names, which the model knows; borrows texts->targets. Exit status. */
int tl_cli_lora(const tl_cli *cli, const tl_lora_texts *texts, tl_lora_options *lora);
/* From the common options of the command line. */
int tl_cli_lora_typed(const tl_cli *cli, tl_lora_options *lora);
/* " --lora 8 --lora-alpha 16", as typed; "" without adapters. */
void tl_cli_lora_text(const tl_lora_options *lora, char *text, size_t size);

/* One line that a checkpoint keeps ("rank=8,alpha=16,base=nf4,targets=q_proj,v_proj"), and back: false for what is none. `targets`
 * is where the names are kept. */
void tl_cli_lora_note(const tl_lora_options *lora, char *text, size_t size);
bool tl_cli_lora_from_note(const char *text, tl_lora_options *lora, char targets[TL_LORA_TARGETS]);

#endif
