/* config/write.h: the parts of a config.json as written. */
#ifndef TALLY_CONFIG_WRITE_H
#define TALLY_CONFIG_WRITE_H

#include "config/reader.h"
#include "tally/config.h"

const char *tl_write_activation(tl_activation activation);
/* num_hidden_layers … tie_word_embeddings, under llama's names */
void tl_write_sizes(tl_json *json, const tl_model *model);
/* n_layer … tie_word_embeddings, under gpt2's names */
void tl_write_gpt2_keys(tl_json *json, const tl_model *model);
/* rope_theta and rope_scaling */
void tl_write_rope(tl_json *json, const tl_model *model);
/* config/write_family.c: every key of a family but gpt2 and llama, model_type apart */
void tl_write_family(tl_json *json, const tl_model *model);

#endif
