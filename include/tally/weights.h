/* tally/weights.h: a net's weights as Hugging Face keeps them: model.safetensors, or shards with
 * model.safetensors.index.json, beside a config.json. Every family of decoders, under its published names (tally/names.h).
 *
 * On the way, what is published in another form than the net has it takes that form: GPT-2's four weights of each layer that are
 * [in, out] (Conv1D: attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj) are transposed; experts published one by one are slices of
 * one parameter; a matrix in F8_E4M3 with a weight_scale_inv beside it is multiplied by its scale of each 128 × 128 block
 * (DeepSeek-AI 2024, arXiv 2412.19437, section 3.3.2); gpt_oss's experts in MXFP4 (NAME_blocks and NAME_scales; OCP Microscaling
 * Formats 1.0), whose values f32 and bf16 hold as they are. What is written is never packed: a net has values, not codes.
 *
 * Names may start otherwise than the family's own: a decoder alone ("h.0.…", "decoder.layers.…"), or the text part of a model of
 * text and pictures ("language_model.model.…", "model.language_model.…"). Left out by name, counted and said are:
 *   buffers       rotary tables (…inv_freq), masks (GPT-2's and GPT-J's attn.bias and attn.masked_bias, GPT-NeoX's
 *                 attention.bias), OPT's version
 *   a head        that repeats the tied embedding bit for bit; another is an error
 *   other parts   of such a model: vision_tower.…, multi_modal_projector.…, audio_tower.… and their kin
 *   shared keys   and values, with their norms, of Gemma 4's layers that read an earlier layer's
 *   prediction    DeepSeek-V3's layers beyond the last, for multi-token prediction: those that hold an eh_proj
 * Refused by name: GPTQ, AWQ, bitsandbytes, compressed-tensors, and fp8 with scales of another form.
 *
 * Values in another format than the net's are converted, rounded to nearest even, counted and said; a value that would
 * become infinite is an error, as are integers. Beyond the net one block is held, of 1 MiB or the largest parameter where that is
 * less, and booked in the phase (load or save). An optimizer that keeps master copies takes them anew after loading:
 * tl_optimizer_refresh.
 */
#ifndef TALLY_WEIGHTS_H
#define TALLY_WEIGHTS_H

#include "tally/nn.h"
#include "tally/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_weights_report {
    int64_t files, tensors,
        bytes; /* read: published tensors of the net, and what values and scales took in the files */
    int64_t formats[TL_DTYPE_COUNT]; /* tensors by the file's format */
    int64_t converted, transposed;   /* of them */
    int64_t ignored;                 /* tensors left out by name */
    int64_t strays;                  /* .safetensors files of the folder that the index does not name */
    char prefix[32]; /* of the names, where it is not the family's own: "transformer." of gpt2; else "" */
    char note[1024]; /* what was converted, ignored and stray, by name; "" if nothing was */
} tl_weights_report;

/* `path`: a folder (its index decides which files count; without one its model.safetensors), an index, one .safetensors
 * file, or a checkpoint of tally or the folder of a run. The net is filled in place, phase load. Errors name the first
 * tensors that are missing, unknown or of another shape, and a shard that is not there. A failure while values are read leaves
 * the net partly filled. Of a net with adapters (tally/lora.h) the base is filled, quantised parameters one by one, and the
 * adapters stay. `report` may be NULL. */
tl_status tl_weights_load(const char *path, tl_net *net, tl_weights_report *report, tl_error *error) TL_MUST_CHECK;

/* The files alone, to look at: one, or those an index names. `path` as above, checkpoints apart. NULL with *error filled. */
typedef struct tl_weights_files tl_weights_files;
tl_weights_files *tl_weights_open(const char *path, tl_error *error);
void tl_weights_close(tl_weights_files *files); /* NULL allowed */
int64_t tl_weights_file_count(const tl_weights_files *files);
const tl_safetensors *tl_weights_file(const tl_weights_files *files, int64_t index);
const char *tl_weights_file_name(const tl_weights_files *files, int64_t index); /* NULL: there is no index */
/* Whether a tensor that file `index` holds is one of the model's: the index, where there is one, says that it lies there. */
bool tl_weights_file_counts(const tl_weights_files *files, int64_t index, const char *name);
/* Strays by name, and a total in the index that is not its tensors'; "" for none. */
const char *tl_weights_files_note(const tl_weights_files *files);

/* What the published files of a model take, as its config.json says they hold it (tl_model.stored): bytes of all values and scales,
 * and of them those of the packed format. The rest is taken to be in bf16, DeepSeek-V3's bias of choice in f32; layers for
 * multi-token prediction and other parts of the model are left out. `packed` counts parameters. */
typedef struct tl_weights_stored {
    int64_t bytes, packed, packed_bytes;
} tl_weights_stored;
tl_status tl_weights_stored_bytes(const tl_model *model, tl_weights_stored *stored, tl_error *error) TL_MUST_CHECK;

/* Whether a tensor of that name scales another ("….weight_scale_inv"): its format is not the weights'. */
bool tl_weights_is_scale(const char *name);

typedef struct tl_weights_options {
    int64_t shard_bytes; /* values of one file at most, though never less than one tensor; 0: one file */
    const char *prefix;  /* of gpt2's names: "transformer."; NULL or "": the family's own */
    bool convert;        /* into `dtype`: f64, f32, bf16 or f16; else as the net has them */
    tl_dtype dtype;
} tl_weights_options;

/* Writes config.json and model.safetensors, or shards model-00001-of-00003.safetensors and, last, their index, into the
 * folder (made if need be), each file whole or not at all; phase save. Experts that are published one by one are written so,
 * and may lie in several shards. Refuses a net that no config.json of Hugging Face describes. A model that
 * lay there under other files is removed once the new one is whole. options NULL: the defaults. */
tl_status tl_weights_save(const char *folder, const tl_net *net, const tl_weights_options *options,
                          tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
