/* tally/tokens.h: files of tokens, mapped into memory, and what a training run draws from them.
 *
 * Three forms
 *   raw   ids and nothing else, uint16 or uint32, little-endian (nanoGPT's train.bin). The width is not in the file. It is
 *         stated by the caller, or inferred where the ids leave no doubt; what they showed is kept as `evidence`.
 *   llmc  llm.c's shards: a header of 256 int32, then the ids. Magic 20240520 and version 1: uint16; magic 20240801 and
 *         version 7: uint32; word 2 is the number of tokens (karpathy/llm.c, dev/data/data_common.py). That number is held
 *         against the file's length.
 *   npy   NumPy's, one axis, '<u2' '<u4' '<i4' or '<i8'.
 * What is none of these is refused by saying what it is: a zip archive, an HTML page, a git-LFS pointer, a text.
 *
 * Several files are one stream of tokens, in their order: a list as it is given, a pattern (glob) or a folder in the order
 * of the bytes of the names. A folder's shards are what its file shards.txt lists, one name a line; without that file, all
 * *.bin and *.npy of it. All files of a stream have one form and one width: a file that differs is an error that names it,
 * and so is a folder that holds files named train beside files named val or test.
 *
 * A file is mapped, shared and read-only; nothing of it is copied, and pages that were read are dropped from the process
 * again: a file of 2 GB costs no resident memory beyond the pages in use. As with any mapping, cutting a file short while it
 * is in use ends the program by SIGBUS.
 *
 * An id is never changed to make it fit. One that is negative or not below the vocabulary is an error with its value, its
 * index and its file, whenever it is read.
 */
#ifndef TALLY_TOKENS_H
#define TALLY_TOKENS_H

#include "tally/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- streams of tokens ---- */

typedef enum tl_token_form { TL_TOKENS_ANY, TL_TOKENS_RAW, TL_TOKENS_LLMC, TL_TOKENS_NPY } tl_token_form;
const char *tl_token_form_name(tl_token_form form); /* "raw" "llmc" "npy"; "any" */

typedef struct tl_token_file {
    const char *path;
    tl_token_form form;
    int version;        /* llmc: 1 or 7; npy: 1, 2 or 3; raw: 0 */
    int width;          /* bytes of an id: 2 or 4; npy's int64: 8 */
    bool is_signed;     /* npy's int32 and int64 */
    int64_t count;      /* ids */
    int64_t first;      /* position of its first id in the stream */
    int64_t offset;     /* of its first id in the file, bytes */
    int64_t bytes;      /* of the file */
    bool inferred;      /* the width was not stated and is not in the file */
    char evidence[160]; /* if so: what showed it */
} tl_token_file;
/* "uint16", "uint32", "int32", "int64" */
const char *tl_token_file_dtype(const tl_token_file *file);

typedef struct tl_tokens_options {
    tl_token_form form; /* ANY: as the file says; any other: files of that form alone */
    int width;          /* of raw files: 2, 4, or 0 to infer it */
} tl_tokens_options;

typedef struct tl_tokens tl_tokens;
/* Each path is a file, a folder or a pattern with * ? or [. options NULL: all zero. NULL with *error filled. */
tl_tokens *tl_tokens_open(const char *const *paths, int count, const tl_tokens_options *options,
                          const tl_allocator *allocator, tl_error *error);
void tl_tokens_close(tl_tokens *tokens);
int64_t tl_tokens_count(const tl_tokens *tokens); /* ids of the whole stream; 0 is a stream like any other */
int tl_tokens_files(const tl_tokens *tokens);
const tl_token_file *tl_tokens_file(const tl_tokens *tokens, int index); /* NULL outside */
/* The file that holds the id at a position of the stream. */
const tl_token_file *tl_tokens_at(const tl_tokens *tokens, int64_t position);

/* The header alone, of a file that begins with these `size` bytes (1024 or all there are) and is `total` bytes long; a raw
 * file whose width is not stated gets width 0. `name` stands in messages. */
tl_status tl_tokens_parse(const void *bytes, size_t size, int64_t total, const char *name,
                          const tl_tokens_options *options, tl_token_file *file, tl_error *error) TL_MUST_CHECK;

/* `count` ids from position `first` on. An id that is negative or ≥ vocab (0: 2^31) is an error. Any number of threads may
 * read at once. */
tl_status tl_tokens_read(const tl_tokens *tokens, int64_t first, int64_t count, int64_t vocab, int32_t *ids,
                         tl_error *error) TL_MUST_CHECK;

typedef struct tl_token_scan_options {
    int64_t vocab;      /* 0: not known */
    int64_t separator;  /* id that ends (or begins) each document; −1: none */
    int64_t *histogram; /* NULL, or counts of ids 0 … histogram_size − 1, added to */
    int64_t histogram_size;
} tl_token_scan_options;
typedef struct tl_token_scan {
    int64_t count;       /* ids looked at: all of them */
    int64_t least, most; /* of the ids; 0 where there are none */
    int64_t bad;         /* ids that cannot be */
    int64_t first_bad;   /* position of the first, −1: none */
    int64_t first_bad_id;
    int64_t separators; /* how often `separator` occurs */
    char problem[512];  /* "": none. Says the first bad id, its index and file, and what is suspected */
} tl_token_scan;
/* Reads every id, and drops the pages behind it. Bad are ids < 0 or ≥ vocab; of a raw file of 2 bytes, every second id
 * where those are all below 4 and the others are not (uint32 read as uint16); of a raw file of 4 bytes ids of 2^21 and more,
 * more than any known vocabulary has (uint16 read as uint32). Fails only where it cannot look. */
tl_status tl_tokens_scan(const tl_tokens *tokens, const tl_token_scan_options *options, tl_token_scan *scan,
                         tl_error *error) TL_MUST_CHECK;

/* ---- samplers: which windows are drawn, in which order ----
 * A window of T tokens at position p: input x[p … p+T), target x[p+1 … p+T+1). Window i of a run depends on (seed, i) alone:
 * a run that goes on at i, or reads with more threads, draws the same. That i is all a checkpoint has to keep. */
typedef enum tl_sampler_kind {
    TL_SAMPLER_RANDOM, /* with replacement: p = uniform in [0, n − T), as nanoGPT's and CS336's get_batch */
    TL_SAMPLER_EPOCHS, /* p = T·k: each of the ⌊(n − 1)/T⌋ windows once an epoch, each epoch in an order of its own */
    TL_SAMPLER_IN_ORDER /* the same windows in the order of the stream, again and again: for evaluation */
} tl_sampler_kind;

typedef struct tl_sampler_options {
    tl_sampler_kind kind;
    int64_t seq;   /* T */
    uint64_t seed; /* of the data */
    int64_t vocab; /* 0: not checked beyond 2^31 */
    /* Documents packed one behind the other: where boundaries are known, the first token of a document is no target (it is
     * TL_IGNORE_INDEX: nothing before it foretells it). Attention reaches back across a boundary unless the net is told of
     * positions (tl_sampler_positions).
     * Known are they by an id that ends each document (nanoGPT) or begins it (llm.c), or by the documents' positions. */
    bool ignore_boundaries;
    int64_t separator; /* −1: none */
    bool separator_begins;
    const int64_t
        *documents; /* positions of first tokens, rising; NULL: none. The caller's, and outlives the sampler */
    int64_t document_count;
} tl_sampler_options;

typedef struct tl_sampler {
    const tl_tokens *tokens; /* outlives it */
    tl_sampler_options options;
    int64_t windows; /* starts to choose from; EPOCHS and IN_ORDER: windows of an epoch */
    uint64_t stream;
} tl_sampler;
/* A stream of fewer than T + 1 tokens has no window: the error says what would work. */
tl_status tl_sampler_init(tl_sampler *sampler, const tl_tokens *tokens, const tl_sampler_options *options,
                          tl_error *error) TL_MUST_CHECK;
/* Position of window `index` in the stream. */
int64_t tl_sampler_start(const tl_sampler *sampler, uint64_t index);
/* Of a window's inputs: how many tokens of its own document stand before each in the window (tl_net_documents). Boundaries are
 * those of ignore_boundaries; the window's first token is 0. Pure. */
void tl_sampler_positions(const tl_sampler *sampler, uint64_t index, const int32_t *input, int32_t *positions);
/* T inputs and T targets of window `index`. */
tl_status tl_sampler_window(const tl_sampler *sampler, uint64_t index, int32_t *input, int32_t *target,
                            tl_error *error) TL_MUST_CHECK;

/* ---- the reader: steps of batches made ahead by threads of their own ---- */

typedef struct tl_reader_options {
    tl_sampler_options sampler;
    int64_t micro_batch;  /* B windows each */
    int64_t accumulation; /* A micro-batches a step; 0 is 1 */
    int threads;          /* that read ahead; 0: read when asked */
    int slots;            /* steps held ready; 0 is 2 */
    bool positions;       /* batches have them; the sampler knows boundaries */
    bool locked;          /* their memory is locked (mlock); where the system refuses, that is an error */
    uint64_t position;    /* windows drawn before: 0, or a checkpoint's */
    /* NULL: its own; or i32 [slots,A,2,B,T] (3 with positions), contiguous: the caller's, and outlives it (tl_trainer_ring). */
    tl_tensor *ring;
} tl_reader_options;

typedef struct tl_reader tl_reader;
/* Its buffers are a tensor of category data. NULL with the context's error. Free it before `tokens` and the context. */
tl_reader *tl_reader_new(tl_ctx *ctx, const tl_tokens *tokens, const tl_reader_options *options);
void tl_reader_free(tl_reader *reader);

typedef struct tl_token_batch {
    tl_tensor *input, *target; /* i32 [B,T], category data, dims named B and T */
    int64_t counted, total;    /* targets that are not ignored, of this batch and of its step; total 0: all count */
    tl_tensor *positions;      /* as input; NULL: not asked for */
} tl_token_batch;
/* The next micro-batch, its tensors in the current scope. A step in which no target counts is an error. An error met ahead arrives when its step's turn has come, with the
 * id, its index and its file, and sticks in the context. */
tl_status tl_reader_next(tl_reader *reader, tl_token_batch *batch) TL_MUST_CHECK;
uint64_t tl_reader_position(const tl_reader *reader); /* windows handed out so far: for a checkpoint */
double tl_reader_waited(const tl_reader *reader);     /* seconds tl_reader_next waited for data, summed */

/* ---- writing ---- */

typedef struct tl_token_writer tl_token_writer;
/* Under a temporary name beside `path`; width 2 or 4. A writer needs an end. NULL with *error filled. */
tl_token_writer *tl_token_writer_new(const char *path, tl_token_form form, int width, const tl_allocator *allocator,
                                     tl_error *error);
/* Ids that do not fit are refused, with value and index: negative ones, those above 65,535 in two bytes. */
tl_status tl_token_writer_put(tl_token_writer *writer, const int32_t *ids, int64_t count,
                              tl_error *error) TL_MUST_CHECK;
int64_t tl_token_writer_count(const tl_token_writer *writer);
/* TL_OK: header completed, flushed to the disk, renamed to its name; anything else: taken away, and that status returned.
 * The writer is gone either way. llm.c's header counts to 2^31 − 1. */
tl_status tl_token_writer_end(tl_token_writer *writer, tl_status status, tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
