/* Finding an accelerator by the names people use, and device lists such as
 * 8xH100. */
#include "tally/hw.h"

#include "base/nearest.h"
#include "hw/accelerator_table.h"

#include <stdio.h>
#include <string.h>

#define TOKENS 8
#define TOKEN_LENGTH 24
#define MOST_DEVICES INT64_C(10000000)

int tl_accelerator_count(void) { return tl_accelerator_table_count; }

const tl_accelerator *tl_accelerator_at(int index) {
    return index >= 0 && index < tl_accelerator_table_count ? &tl_accelerator_table[index] : NULL;
}

const char *tl_rate_name(tl_rate rate) {
    static const char *const names[TL_RATE_COUNT] = {
        [TL_RATE_FP64] = "fp64", [TL_RATE_FP32] = "fp32", [TL_RATE_TF32] = "tf32", [TL_RATE_BF16] = "bf16",
        [TL_RATE_FP16] = "fp16", [TL_RATE_FP8] = "fp8",   [TL_RATE_FP4] = "fp4",   [TL_RATE_INT8] = "int8",
    };
    return (int)rate >= 0 && rate < TL_RATE_COUNT ? names[rate] : "unknown";
}

/* A name as its parts: "NVIDIA A100-SXM4-80GB" is a100, sxm4, 80g. */
typedef struct name_parts {
    int count;
    char part[TOKENS][TOKEN_LENGTH];
} name_parts;

static char lower(char c) { return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Words that name a maker or a brand and never tell two parts apart. */
static bool is_brand(const char *part) {
    static const char *const brands[] = {"nvidia", "tesla",  "geforce", "amd",  "instinct",
                                         "intel",  "google", "aws",     "cloud"};
    for (size_t i = 0; i < sizeof brands / sizeof brands[0]; i++)
        if (strcmp(part, brands[i]) == 0)
            return true;
    return false;
}

static bool split_name(const char *name, name_parts *out) {
    out->count = 0;
    while (*name != '\0') {
        size_t length = 0;
        char *part;
        while (*name == ' ' || *name == '-' || *name == '_')
            name++;
        if (*name == '\0')
            break;
        if (out->count == TOKENS)
            return false;
        part = out->part[out->count];
        for (; *name != '\0' && *name != ' ' && *name != '-' && *name != '_'; name++) {
            if (length + 1 >= TOKEN_LENGTH)
                return false;
            part[length++] = lower(*name);
        }
        part[length] = '\0';
        /* "80GB" and "80G" are one label here: it is part of a name, not a number
     * of bytes. */
        if (length > 2 && is_digit(part[0]) && strcmp(part + length - 2, "gb") == 0)
            part[length - 1] = '\0';
        if (!is_brand(part))
            out->count++;
    }
    return out->count > 0;
}

/* All parts run together, so that "rtx4090" meets "RTX-4090". */
static void join_parts(const name_parts *parts, char out[TOKENS * TOKEN_LENGTH]) {
    size_t used = 0;
    for (int i = 0; i < parts->count; i++) {
        size_t length = strlen(parts->part[i]);
        memcpy(out + used, parts->part[i], length);
        used += length;
    }
    out[used] = '\0';
}

static bool same_joined(const name_parts *query, const char *name) {
    name_parts other;
    char left[TOKENS * TOKEN_LENGTH], right[TOKENS * TOKEN_LENGTH];
    if (!split_name(name, &other))
        return false;
    join_parts(query, left);
    join_parts(&other, right);
    return strcmp(left, right) == 0;
}

/* "sxm" stands for sxm2, sxm4 and sxm5; everything else is spelt out. */
static bool same_part(const char *asked, const char *part) {
    size_t length = strlen(asked);
    if (strcmp(asked, part) == 0)
        return true;
    return strcmp(asked, "sxm") == 0 && strncmp(part, asked, length) == 0 && is_digit(part[length]);
}

/* Every part asked for is there, and the first of them is the one that names
 * the chip. */
static bool matches_parts(const name_parts *query, const tl_accelerator *accelerator) {
    name_parts have;
    int chip;
    if (!split_name(accelerator->name, &have))
        return false;
    chip = have.count > 1 &&
           (strcmp(have.part[0], "rtx") == 0 || strcmp(have.part[0], "tpu") == 0 || strcmp(have.part[0], "apple") == 0);
    if (!same_part(query->part[0], have.part[0]) && !(chip && same_part(query->part[0], have.part[1])))
        return false;
    for (int i = 1; i < query->count; i++) {
        bool found = false;
        for (int j = 0; j < have.count && !found; j++)
            found = same_part(query->part[i], have.part[j]);
        if (!found)
            return false;
    }
    return true;
}

static const char *accelerator_name(int index) { return tl_accelerator_table[index].name; }

/* The names that match, comma-separated; returns how many fitted. */
static int list_matches(const name_parts *parts, char *list, size_t size) {
    size_t used = 0;
    int shown = 0;
    list[0] = '\0';
    for (int i = 0; i < tl_accelerator_table_count; i++) {
        int wrote;
        if (!matches_parts(parts, &tl_accelerator_table[i]))
            continue;
        wrote = snprintf(list + used, size - used, "%s%s", shown == 0 ? "" : ", ", tl_accelerator_table[i].name);
        if (wrote < 0 || (size_t)wrote >= size - used)
            break;
        used += (size_t)wrote;
        shown++;
    }
    return shown;
}

static tl_status fail_unknown(const char *name, name_parts *parts, tl_error *error) {
    char quoted[80], list[640];
    tl_quotable(name, strlen(name), quoted, sizeof quoted);
    /* The chip is known and only its size or form is not: name its real forms. */
    if (parts->count > 1 && strpbrk(parts->part[0], "0123456789") != NULL) {
        parts->count = 1;
        if (list_matches(parts, list, sizeof list) > 0)
            return tl_fail(error, TL_ERR_NOT_FOUND, "no accelerator \"%s\"; of that chip there are %s", quoted, list);
    }
    if (tl_nearest_names(name, accelerator_name, tl_accelerator_table_count, 3, list, sizeof list) > 0)
        return tl_fail(error, TL_ERR_NOT_FOUND, "no accelerator \"%s\"; did you mean %s? (`tally gpus` lists all)",
                       quoted, list);
    return tl_fail(error, TL_ERR_NOT_FOUND,
                   "no accelerator \"%s\"; `tally gpus` lists all %d, and --peak "
                   "takes a rate by hand for a device it does not list",
                   quoted, tl_accelerator_table_count);
}

static tl_status fail_ambiguous(const char *name, const name_parts *parts, tl_error *error) {
    char quoted[80], list[640];
    (void)list_matches(parts, list, sizeof list);
    return tl_fail(error, TL_ERR_NOT_FOUND, "\"%s\" may mean any of %s; say which",
                   tl_quotable(name, strlen(name), quoted, sizeof quoted), list);
}

tl_status tl_accelerator_find(const char *name, const tl_accelerator **found, const char **note, tl_error *error) {
    name_parts parts;
    int matches = 0, last = 0;
    *found = NULL;
    if (note != NULL)
        *note = NULL;
    if (name == NULL || name[0] == '\0')
        return tl_fail(error, TL_ERR_ARGUMENT, "an accelerator's name is empty; try H100 or A100-80G");
    if (!split_name(name, &parts))
        return fail_unknown(name, &parts, error);
    for (int i = 0; i < tl_accelerator_table_count; i++) {
        if (same_joined(&parts, tl_accelerator_table[i].name)) {
            *found = &tl_accelerator_table[i];
            return TL_OK;
        }
    }
    for (int i = 0; i < tl_accelerator_alias_count; i++) {
        if (same_joined(&parts, tl_accelerator_aliases[i].alias)) {
            *found = &tl_accelerator_table[tl_accelerator_aliases[i].index];
            if (note != NULL)
                *note = tl_accelerator_aliases[i].note;
            return TL_OK;
        }
    }
    for (int i = 0; i < tl_accelerator_table_count; i++) {
        if (matches_parts(&parts, &tl_accelerator_table[i])) {
            matches++;
            last = i;
        }
    }
    if (matches > 1)
        return fail_ambiguous(name, &parts, error);
    if (matches == 0)
        return fail_unknown(name, &parts, error);
    *found = &tl_accelerator_table[last];
    return TL_OK;
}

/* The length of the sign between count and name: x, X or the multiplication
 * sign. */
static size_t times_length(const char *text) {
    if (text[0] == 'x' || text[0] == 'X')
        return 1;
    return (unsigned char)text[0] == 0xC3 && (unsigned char)text[1] == 0x97 ? 2 : 0;
}

/* Reads the COUNTx in front; leaves *rest at the name. No count is a count
 * of 1. */
static tl_status parse_count(const char *text, const char *quoted, int64_t *count, const char **rest, tl_error *error) {
    size_t digits = 0, times;
    int64_t value = 0;
    bool overflow = false;
    *count = 1;
    *rest = text;
    if (times_length(text) > 0)
        return tl_fail(error, TL_ERR_ARGUMENT, "devices \"%s\": no count before the x; write 8xH100, or H100 for one",
                       quoted);
    if (text[0] == '-' || text[0] == '+')
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "devices \"%s\": the count is a plain whole number of at "
                       "least 1, as in 8xH100",
                       quoted);
    for (; is_digit(text[digits]); digits++)
        if (!overflow)
            overflow = !tl_mul_i64(value, 10, &value) || !tl_add_i64(value, text[digits] - '0', &value);
    times = times_length(text + digits);
    if (digits == 0 || times == 0) {
        const char *after = text + digits;
        if (digits > 0 && (*after == '.' || *after == ',' || *after == '_' || *after == ' ' || *after == '\0') &&
            strpbrk(after, "xX") != NULL)
            return tl_fail(error, TL_ERR_ARGUMENT,
                           "devices \"%s\": the count is a plain whole number right "
                           "before the x, as in 8xH100",
                           quoted);
        return TL_OK;
    }
    if (overflow || value > MOST_DEVICES)
        return tl_fail(error, TL_ERR_OVERFLOW, "devices \"%s\": more than %lld devices; the most is %lld", quoted,
                       (long long)MOST_DEVICES, (long long)MOST_DEVICES);
    if (value < 1)
        return tl_fail(error, TL_ERR_ARGUMENT, "devices \"%s\": the count is 0; at least 1, as in 1xH100", quoted);
    *count = value;
    *rest = text + digits + times;
    if (**rest == '\0' || **rest == ' ')
        return tl_fail(error, TL_ERR_ARGUMENT, "devices \"%s\": no device right after the x; write %lldxH100", quoted,
                       (long long)value);
    return TL_OK;
}

/* "H100x8" and "H100:8": the order is the other one. */
static bool is_turned_round(const char *name) {
    size_t length = strlen(name), digits = 0;
    while (digits < length && is_digit(name[length - digits - 1]))
        digits++;
    return digits > 0 && digits + 1 < length &&
           (lower(name[length - digits - 1]) == 'x' || name[length - digits - 1] == ':');
}

/* "8H100" and "8 H100": digits, then what is a device by itself. */
static const char *without_count(const char *name) {
    const char *device = name;
    while (is_digit(*device))
        device++;
    while (device > name && *device == ' ')
        device++;
    const tl_accelerator *found;
    tl_error ignored = {TL_OK, ""};
    return device > name && tl_accelerator_find(device, &found, NULL, &ignored) == TL_OK ? device : NULL;
}

tl_status tl_parse_devices(const char *text, tl_devices *devices, tl_error *error) {
    char quoted[80];
    const char *name;
    tl_error inner;
    tl_status status;
    memset(devices, 0, sizeof *devices);
    if (text == NULL || text[0] == '\0')
        return tl_fail(error, TL_ERR_ARGUMENT, "no devices named; write 8xH100, H100, or here for this machine");
    tl_quotable(text, strlen(text), quoted, sizeof quoted);
    status = parse_count(text, quoted, &devices->count, &name, error);
    if (status != TL_OK)
        return status;
    if ((name[0] == 'h' || name[0] == 'H') && lower(name[1]) == 'e' && lower(name[2]) == 'r' && lower(name[3]) == 'e' &&
        name[4] == '\0') {
        devices->here = true;
        return TL_OK;
    }
    tl_error_clear(&inner);
    status = tl_accelerator_find(name, &devices->accelerator, &devices->note, &inner);
    if (status != TL_OK && is_turned_round(name))
        return tl_fail(error, TL_ERR_ARGUMENT, "devices \"%s\": the count comes first, as in 8xH100", quoted);
    const char *device = status == TL_OK ? NULL : without_count(name);
    if (device)
        return tl_fail(error, TL_ERR_ARGUMENT, "devices \"%s\": an x parts the count from the device: %.*sx%s", quoted,
                       (int)strspn(name, "0123456789"), name, device);
    return status == TL_OK ? TL_OK : tl_fail(error, status, "%s", inner.message);
}
