/* tally/config.h: model descriptions from files. The only reader of JSON (jansson stays behind src/config).
 *
 * Outside the planner core: the core takes a tl_model.
 */
#ifndef TALLY_CONFIG_H
#define TALLY_CONFIG_H

#include "tally/dtype.h"
#include "tally/json.h"
#include "tally/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A Hugging Face config.json of a known family (all of tl_family but the cruncher). What the file leaves out is named in model->assumed or
 * refused; a key that would change the model in a way this build does not do is refused by name; another model_type is
 * refused by name with what would work. Files over 16 MiB, non-JSON (an HTML page, a git-LFS pointer, a zip, a pickle,
 * safetensors: named as what it is), duplicate keys, wrong types, negative, fractional and overflowing values are errors
 * with file:line:column and the key. Accepts `Infinity`/`NaN` and integers beyond 64 bits where the key does not matter. */
tl_status tl_config_read(const char *path, tl_model *model, tl_error *error) TL_MUST_CHECK;
/* The same from text; `name` is for messages. */
tl_status tl_config_parse(const char *text, size_t length, const char *name, tl_model *model,
                          tl_error *error) TL_MUST_CHECK;

/* MODEL as the command line takes it: a catalogue name (case-insensitive, an organisation prefix "meta-llama/" dropped), a
 * path to a config.json, or a folder holding one. */
tl_status tl_model_find(const char *name_or_path, tl_model *model, tl_error *error) TL_MUST_CHECK;

/* The model in Hugging Face's keys, as tl_config_parse reads them back (of every family but the cruncher; llama with a gated
 * MLP; nothing that is not computed). `dtype` is said as torch_dtype; TL_DTYPE_COUNT: not said. Freed with tl_json_free; NULL where memory ran out. */
tl_json *tl_config_json(const tl_model *model, tl_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
