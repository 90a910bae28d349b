/* data/tokens_form.c: which form a file of tokens has, and how wide its ids are. */
#include "data/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/sniff.h"
#include "tally/npy.h"

const char *tl_token_form_name(tl_token_form form) {
    static const char *const names[] = {"any", "raw", "llmc", "npy"};
    return (unsigned)form < 4 ? names[form] : "?";
}

const char *tl_token_file_dtype(const tl_token_file *file) {
    switch (file->width) {
    case 2:
        return file->is_signed ? "int16" : "uint16";
    case 4:
        return file->is_signed ? "int32" : "uint32";
    case 8:
        return file->is_signed ? "int64" : "uint64";
    default:
        return "unknown";
    }
}

static int64_t word_at(const unsigned char *bytes, int index) {
    uint32_t word;
    memcpy(&word, bytes + 4 * index, 4);
    return word;
}

static tl_status wrong_form(const char *name, const char *what, const tl_tokens_options *o, tl_error *error) {
    static const char *const wanted[] = {"a file of tokens", "ids without a header", "an llm.c shard", "a NumPy array"};
    return tl_fail(error, TL_ERR_FORMAT, "%s is %s, not %s", name, what, wanted[(unsigned)o->form % 4]);
}

/* ---- llm.c ---- */

static tl_status parse_llmc(const unsigned char *bytes, size_t size, int64_t total, const char *name,
                            tl_token_file *file, tl_error *error) {
    if (size < TL_LLMC_HEADER)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s begins as an llm.c shard and is cut short: %lld of its header's %d bytes", name,
                       (long long)total, TL_LLMC_HEADER);
    int64_t magic = word_at(bytes, 0), version = word_at(bytes, 1), count = word_at(bytes, 2);
    int64_t wanted = magic == TL_LLMC_MAGIC_16 ? TL_LLMC_VERSION_16 : TL_LLMC_VERSION_32;
    if (version != wanted)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s is an llm.c shard (magic %lld) of version %lld; versions known are 20240520/1 (uint16) and "
                       "20240801/7 (uint32)",
                       name, (long long)magic, (long long)version);
    file->form = TL_TOKENS_LLMC;
    file->version = (int)version;
    file->width = magic == TL_LLMC_MAGIC_16 ? 2 : 4;
    file->offset = TL_LLMC_HEADER;
    int64_t held = (total - TL_LLMC_HEADER) / file->width;
    if (count > INT32_MAX)
        return tl_fail(error, TL_ERR_FORMAT, "%s: the header counts %lld tokens, a negative number in its 32 bits",
                       name, (long long)count);
    if (held < count)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s is cut short: its header counts %lld tokens, the file has room for %lld (%lld bytes)", name,
                       (long long)count, (long long)held, (long long)total);
    if (total != TL_LLMC_HEADER + count * file->width)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s: its header counts %lld tokens, %lld bytes with the header, and the file has %lld", name,
                       (long long)count, (long long)(TL_LLMC_HEADER + count * file->width), (long long)total);
    file->count = count;
    return TL_OK;
}

/* ---- npy ---- */

static tl_status parse_npy(const void *bytes, size_t size, int64_t total, const char *name, tl_token_file *file,
                           tl_error *error) {
    tl_npy_header h;
    tl_status status = tl_npy_parse(bytes, size, total, name, &h, error);
    if (status != TL_OK)
        return status;
    bool known = (h.kind == 'u' && (h.element_bytes == 2 || h.element_bytes == 4)) ||
                 (h.kind == 'i' && (h.element_bytes == 4 || h.element_bytes == 8));
    if (!known || h.swapped)
        return tl_fail(error, TL_ERR_FORMAT, "%s is a NumPy array of '%s'; tokens are '<u2', '<u4', '<i4' or '<i8'",
                       name, h.descr);
    if (h.ndim != 1)
        return tl_fail(error, TL_ERR_FORMAT, "%s is a NumPy array of %d axes; tokens have one: save a.reshape(-1)",
                       name, h.ndim);
    file->form = TL_TOKENS_NPY;
    file->version = h.version;
    file->width = h.element_bytes;
    file->is_signed = h.kind == 'i';
    file->offset = h.data_offset;
    file->count = h.count;
    return TL_OK;
}

/* ---- raw ---- */

/* Text has no byte below a blank but tabs and ends of lines; ids below 8192 have such a byte each. */
static bool is_text(const unsigned char *bytes, size_t length, bool stated) {
    length = length < 512 ? length : 512;
    if (length < (stated ? 64 : 8))
        return false;
    for (size_t i = 0; i < length; i++)
        if ((bytes[i] < ' ' && bytes[i] != '\t' && bytes[i] != '\n' && bytes[i] != '\r') || bytes[i] == 0x7f)
            return false;
    return true;
}

static tl_status parse_raw(const unsigned char *bytes, size_t size, int64_t total, const char *name,
                           const tl_tokens_options *o, tl_token_file *file, tl_error *error) {
    file->form = TL_TOKENS_RAW;
    file->width = o->width;
    if (is_text(bytes, size, o->width != 0))
        return tl_fail(error, TL_ERR_FORMAT, "%s is text, not tokens; `tally data pack' makes tokens of a text", name);
    if (total % 2 != 0)
        return tl_fail(
            error, TL_ERR_FORMAT,
            "%s has an odd number of bytes (%lld); ids of 2 or 4 bytes would be even: it is cut short, or no "
            "file of tokens",
            name, (long long)total);
    if (o->width && total % o->width != 0)
        return tl_fail(error, TL_ERR_FORMAT, "%s: its %lld bytes are no multiple of %d, the width stated", name,
                       (long long)total, o->width);
    file->count = o->width ? total / o->width : 0;
    return TL_OK;
}

tl_status tl_tokens_parse(const void *data, size_t size, int64_t total, const char *name,
                          const tl_tokens_options *options, tl_token_file *file, tl_error *error) {
    static const tl_tokens_options any = {TL_TOKENS_ANY, 0};
    const tl_tokens_options *o = options ? options : &any;
    const unsigned char *bytes = data;
    const int64_t magic = size >= 4 ? word_at(bytes, 0) : 0;
    const bool llmc = magic == TL_LLMC_MAGIC_16 || magic == TL_LLMC_MAGIC_32;
    const bool npy = size >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0;
    *file = (tl_token_file){.path = name, .bytes = total};
    if (o->width != 0 && o->width != 2 && o->width != 4)
        return tl_fail(error, TL_ERR_ARGUMENT, "ids of %d bytes; 2 or 4 would work", o->width);
    if (magic == TL_LLMC_MAGIC_EVALUATION)
        return wrong_form(name, "an llm.c evaluation file (multiple choice, magic 20240522)", o, error);
    if (llmc && o->form != TL_TOKENS_ANY && o->form != TL_TOKENS_LLMC)
        return wrong_form(name, "an llm.c shard (it begins with a header of 1024 bytes)", o, error);
    if (npy && o->form != TL_TOKENS_ANY && o->form != TL_TOKENS_NPY)
        return wrong_form(name, "a NumPy array (.npy, it begins with a header)", o, error);
    const char *what = llmc || npy ? NULL : tl_sniff(data, size);
    if (what)
        return tl_fail(error, TL_ERR_FORMAT, "%s is %s, not a file of tokens", name, what);
    if (!llmc && o->form == TL_TOKENS_LLMC)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s is no llm.c shard: it begins with %" PRId64 ", not with 20240520 or 20240801", name, magic);
    if (!npy && o->form == TL_TOKENS_NPY)
        return tl_fail(error, TL_ERR_FORMAT, "%s is no NumPy array: it does not begin with \\x93NUMPY", name);
    tl_status status = llmc  ? parse_llmc(bytes, size, total, name, file, error)
                       : npy ? parse_npy(data, size, total, name, file, error)
                             : parse_raw(bytes, size, total, name, o, file, error);
    if (status == TL_OK && o->width && file->form != TL_TOKENS_RAW && file->width != o->width)
        return tl_fail(error, TL_ERR_FORMAT, "%s holds %s, and ids of %d bytes were asked for", name,
                       tl_token_file_dtype(file), o->width);
    return status;
}

/* ---- the width of a raw file ---- */

enum { SAMPLES = 65536, FEW = 16 };

typedef struct halves {
    int64_t words, low_high_half, zero_high_half, large_low_half;
    uint32_t example; /* a word that no vocabulary reaches */
    int64_t example_at;
} halves;

/* Words of four bytes, evenly over the file. As uint32 their high half is below 4; as two uint16 it is any id. */
static void look_at_halves(const unsigned char *ids, int64_t words, halves *h) {
    const int64_t step = words > SAMPLES ? words / SAMPLES : 1;
    *h = (halves){.example_at = -1};
    for (int64_t i = 0; i < words; i += step) {
        uint32_t word;
        memcpy(&word, ids + 4 * i, 4);
        h->words++;
        h->low_high_half += word >> 16 < TL_TOKENS_HIGH_HALF;
        h->zero_high_half += word >> 16 == 0;
        h->large_low_half += (word & 0xFFFF) >= TL_TOKENS_HIGH_HALF;
        if (h->example_at < 0 && word >= TL_TOKENS_MOST_IDS) {
            h->example_at = i;
            h->example = word;
        }
    }
}

tl_status tl_tokens_infer(const unsigned char *ids, tl_token_file *file, tl_error *error) {
    halves h = {.example_at = -1};
    file->inferred = true;
    if (file->bytes == 0) {
        file->width = 2;
        snprintf(file->evidence, sizeof file->evidence, "the file is empty");
    } else if (file->bytes % 4 != 0) {
        file->width = 2;
        snprintf(file->evidence, sizeof file->evidence, "%lld bytes are no multiple of 4", (long long)file->bytes);
    } else {
        look_at_halves(ids, file->bytes / 4, &h);
        if (h.example_at >= 0 && h.low_high_half * 10 < h.words * 9) {
            file->width = 2;
            snprintf(file->evidence, sizeof file->evidence, "as uint32, id %lld would be %lu", (long long)h.example_at,
                     (unsigned long)h.example);
        } else if (h.words >= FEW && h.low_high_half == h.words && h.large_low_half * 10 >= h.words) {
            file->width = 4;
            snprintf(file->evidence, sizeof file->evidence,
                     "as uint16, every second id would be below 4, %lld %% of them 0",
                     (long long)(h.zero_high_half * 100 / h.words));
        }
    }
    if (!file->width)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s has no header, and its ids leave open whether they are uint16 or uint32 (%lld of %lld words "
                       "looked at would do as uint32); say which",
                       file->path, (long long)h.low_high_half, (long long)h.words);
    file->count = file->bytes / file->width;
    return TL_OK;
}
