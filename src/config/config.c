/* From a file, a text or a name to a tl_model. */
#include "tally/config.h"
#include "tally/gguf.h"

#include "base/nearest.h"
#include "config/reader.h"
#include "config/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- text ---- */

static tl_status fail_json(const char *quoted, const json_error_t *problem, tl_error *error) {
    char what[JSON_ERROR_TEXT_LENGTH + 8];
    const char *hint = "";
    tl_quotable(problem->text, strlen(problem->text), what, sizeof what);
    switch (json_error_code(problem)) {
    case json_error_out_of_memory:
        return tl_fail(error, TL_ERR_MEMORY, "%s: not enough memory to read it", quoted);
    case json_error_premature_end_of_input:
        hint = "; the file stops in the middle (half a download?)";
        break;
    case json_error_stack_overflow:
        hint = "; no model description nests like that";
        break;
    case json_error_duplicate_key:
        hint = "; which of the two is meant is not for tally to guess";
        break;
    default:
        break;
    }
    return tl_fail(error, TL_ERR_FORMAT, "%s:%d:%d: not valid JSON: %s%s", quoted, problem->line, problem->column, what,
                   hint);
}

/* What the text is when it cannot be a JSON object at all. */
static tl_status check_start(const char *text, size_t length, const char *quoted, tl_error *error) {
    size_t i = 0;
    const char *what;
    while (i < length && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r'))
        i++;
    if (i == length)
        return tl_fail(error, TL_ERR_FORMAT, "%s: is empty; a Hugging Face config.json is a JSON object", quoted);
    what = tl_config_sniff(text, length);
    if (what != NULL && text[i] != '{')
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s: is %s; a model is read from its Hugging Face config.json, a JSON object", quoted, what);
    if (text[i] != '{')
        return tl_fail(error, TL_ERR_FORMAT, "%s: is no JSON object; a Hugging Face config.json starts with {", quoted);
    /* jansson steps over some of them. */
    const char *nul = memchr(text, '\0', length);
    if (nul != NULL)
        return tl_fail(error, TL_ERR_FORMAT,
                       "%s: byte %zu is NUL, which no JSON text holds: UTF-16 (save it as UTF-8) or a damaged file",
                       quoted, (size_t)(nul - text));
    return TL_OK;
}

/* "models/Llama-3.1-8B/config.json" is Llama-3.1-8B, "gpt2-tiny.json" is gpt2-tiny. */
static void name_model(const char *file, tl_model *model) {
    const char *end = file + strlen(file), *start;
    size_t length;
    for (start = end; start > file && start[-1] != '/'; start--)
        ;
    if (strcasecmp(start, "config.json") == 0 && start - file >= 2 && start[-2] != '/' && start[-2] != '.') {
        end = start - 1;
        for (start = end; start > file && start[-1] != '/'; start--)
            ;
    }
    length = (size_t)(end - start);
    if (length > 5 && strncasecmp(end - 5, ".json", 5) == 0)
        length -= 5;
    tl_quotable(start, length, model->name, sizeof model->name);
    if (model->name[0] == '\0')
        (void)snprintf(model->name, sizeof model->name, "model");
}

/* ---- families ---- */

static void fail_family(tl_config_reader *r, const char *inner) {
    char raw[64];
    const char *hint = "";
    if (json_object_get(r->object, "weight_map") != NULL)
        hint = "; this is the index of a checkpoint, its config.json lies beside it";
    else if (json_object_get(r->object, "added_tokens") != NULL ||
             json_object_get(r->object, "tokenizer_class") != NULL)
        hint = "; this describes a tokenizer, the model's config.json lies beside it";
    else if (json_object_get(r->object, "dim") != NULL && json_object_get(r->object, "n_layers") != NULL)
        hint = "; this is Meta's params.json, the Hugging Face config.json of the same model works";
    char names[320];
    tl_config_family_names(names, sizeof names);
    if (!tl_config_has(r, "model_type"))
        tl_config_fail(r, TL_ERR_FORMAT, NULL, "has no \"model_type\", so its family is unknown%s; this build plans %s",
                       hint, names);
    else
        tl_config_fail(
            r, TL_ERR_UNSUPPORTED, "model_type", "is %s%s%s: that family is not built in yet; this build plans %s",
            tl_config_raw(r, "model_type", raw, sizeof raw), inner[0] != '\0' ? " around " : "", inner, names);
}

static const char *architecture_of(const tl_config_reader *r) {
    return json_string_value(json_array_get(json_object_get(r->object, "architectures"), 0));
}

/* The family of the current object, from model_type or, where that is absent, from architectures. */
static const tl_config_family *find_family(tl_config_reader *r) {
    const tl_config_family *family;
    const char *architecture = architecture_of(r);
    if (tl_config_has(r, "model_type")) {
        const char *type = tl_config_string(r, "model_type");
        return type != NULL ? tl_config_family_find(type, NULL) : NULL;
    }
    family = tl_config_family_find(NULL, architecture);
    if (family != NULL)
        tl_config_assume(r, "model_type absent: %s, assumed from architectures %s", family->type, architecture);
    return family;
}

/* A head other than the language model's is not what is planned. */
static void note_head(tl_config_reader *r, const tl_config_family *family) {
    const char *type = architecture_of(r);
    char quoted[64];
    if (type != NULL && strcmp(type, family->architecture) != 0)
        tl_config_ignore(r, "architectures %s: planned as a language model",
                         tl_quotable(type, strlen(type), quoted, sizeof quoted));
}

static void read_family(tl_config_reader *r, const tl_config_family *family) {
    r->family = family->type;
    family->read(r);
    if (r->status == TL_OK)
        tl_config_refuse_others(r);
    if (r->status == TL_OK)
        tl_config_note_rest(r);
}

/* The text model inside a larger one, such as LLaVA's; one that does not name its family is of the outer one's. */
static void read_inner(tl_config_reader *r, const tl_config_family *outer_family) {
    const json_t *saved;
    const json_t *tied = json_object_get(r->object, "tie_word_embeddings");
    char outer[48], inner[64];
    const tl_config_family *family;
    tl_config_raw(r, "model_type", outer, sizeof outer);
    tl_config_refuse_formats(r);
    if (!tl_config_enter(r, "text_config", &saved))
        return;
    r->base = r->depth;
    r->n_asked = 0;
    family = find_family(r);
    if (family == NULL && !tl_config_has(r, "model_type"))
        family = outer_family;
    tl_config_raw(r, "model_type", inner, sizeof inner);
    if (family == NULL) {
        tl_config_leave(r, saved);
        fail_family(r, inner);
        return;
    }
    tl_config_assume(r, "text_config of %s: its text model alone is planned, other parts are left out", outer);
    read_family(r, family);
    if (!tl_config_has(r, "tie_word_embeddings") && json_is_boolean(tied)) {
        r->model->tied = json_is_true(tied);
        tl_config_assume(r, "tie_word_embeddings: %s, from the object around text_config",
                         r->model->tied ? "true" : "false");
    }
    tl_config_leave(r, saved);
}

static void read_object(tl_config_reader *r) {
    const tl_config_family *family = find_family(r);
    tl_error problem = {0};
    if (r->status != TL_OK)
        return;
    if (json_is_object(json_object_get(r->object, "text_config")))
        read_inner(r, family);
    else if (family != NULL) {
        note_head(r, family);
        read_family(r, family);
    } else
        fail_family(r, "");
    if (r->status != TL_OK)
        return;
    if (tl_model_check(r->model, &problem) != TL_OK)
        tl_config_fail(r, problem.status, NULL, "%s", problem.message);
}

/* ---- entry points ---- */

tl_status tl_config_parse(const char *text, size_t length, const char *name, tl_model *model, tl_error *error) {
    char quoted[256], *soft;
    json_error_t problem;
    json_t *root;
    tl_status status;
    tl_config_reader reader = {.model = model, .error = error};
    memset(model, 0, sizeof *model);
    if (name == NULL || name[0] == '\0')
        name = "config.json";
    tl_quotable(name, strlen(name), quoted, sizeof quoted);
    if (length > TL_CONFIG_MOST_BYTES)
        return tl_fail(error, TL_ERR_FORMAT, "%s: is larger than 16 MiB; a config.json is a few kilobytes", quoted);
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark; Windows editors leave it */
        text += 3;
        length -= 3;
    }
    status = check_start(text, length, quoted, error);
    if (status != TL_OK)
        return status;
    soft = malloc(length + 1);
    if (soft == NULL)
        return tl_fail(error, TL_ERR_MEMORY, "%s: not enough memory to read %zu bytes", quoted, length);
    memcpy(soft, text, length);
    soft[length] = '\0';
    if (tl_config_soften(soft, length) > TL_CONFIG_MOST_VALUES) {
        free(soft);
        return tl_fail(error, TL_ERR_FORMAT, "%s: holds more than %d values; that is no model description", quoted,
                       TL_CONFIG_MOST_VALUES);
    }
    root = json_loadb(soft, length, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) {
        free(soft);
        return fail_json(quoted, &problem, error);
    }
    reader.name = name;
    reader.text = text;
    reader.soft = soft;
    reader.length = length;
    reader.object = root;
    reader.family = "";
    name_model(name, model);
    read_object(&reader);
    json_decref(root);
    free(soft);
    return reader.status;
}

tl_status tl_config_read(const char *path, tl_model *model, tl_error *error) {
    char *text = NULL;
    size_t length = 0;
    tl_status status;
    if (path == NULL || path[0] == '\0')
        return tl_fail(error, TL_ERR_ARGUMENT, "the path of a config.json is empty");
    status = tl_config_load(path, &text, &length, error);
    if (status != TL_OK)
        return status;
    status = tl_config_parse(text, length, path, model, error);
    free(text);
    return status;
}

static bool ends_in(const char *name, const char *ending) {
    size_t length = strlen(name), n = strlen(ending);
    return length > n && strcasecmp(name + length - n, ending) == 0;
}

/* Names that say "file" whether it is there or not. */
static bool is_path(const char *name) {
    size_t length = strlen(name);
    return name[0] == '/' || name[0] == '.' || name[0] == '~' || name[length - 1] == '/' || ends_in(name, ".json") ||
           ends_in(name, ".gguf") || ends_in(name, ".safetensors");
}

static tl_status read_folder(const char *folder, tl_model *model, tl_error *error) {
    size_t length = strlen(folder);
    char *path = malloc(length + sizeof "/config.json"), quoted[256];
    struct stat about;
    tl_status status;
    if (path == NULL)
        return tl_fail(error, TL_ERR_MEMORY, "not enough memory for a path");
    (void)snprintf(path, length + sizeof "/config.json", "%s%s", folder,
                   folder[length - 1] == '/' ? "config.json" : "/config.json");
    if (stat(path, &about) != 0 && errno == ENOENT)
        status = tl_fail(error, TL_ERR_NOT_FOUND, "%s: is a folder without a config.json; name the description itself",
                         tl_quotable(folder, length, quoted, sizeof quoted));
    else
        status = tl_config_read(path, model, error);
    free(path);
    return status;
}

static tl_status read_gguf(const char *path, tl_model *model, tl_error *error) {
    tl_gguf *file = tl_gguf_open(path, error);
    if (!file)
        return error ? error->status : TL_ERR_FORMAT;
    tl_status status = tl_gguf_model(file, path, model, error);
    tl_gguf_close(file);
    return status;
}

/* Weights say nothing of heads, norms or angles; the description lies in the same folder. */
static tl_status read_beside(const char *path, tl_model *model, tl_error *error) {
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) + 1 : 0;
    size_t size = (size_t)length + sizeof "config.json";
    char *beside = malloc(size), quoted[256];
    struct stat about;
    tl_status status;
    if (beside == NULL)
        return tl_fail(error, TL_ERR_MEMORY, "not enough memory for a path");
    (void)snprintf(beside, size, "%.*sconfig.json", length, path);
    if (stat(beside, &about) != 0)
        status = tl_fail(error, TL_ERR_NOT_FOUND,
                         "%s: weights alone do not describe a model, and there is no config.json beside them",
                         tl_quotable(path, strlen(path), quoted, sizeof quoted));
    else
        status = tl_config_read(beside, model, error);
    free(beside);
    return status;
}

tl_status tl_model_find(const char *name, tl_model *model, tl_error *error) {
    char quoted[256];
    struct stat about;
    tl_error unknown = {0};
    tl_status status;
    bool there;
    if (name == NULL || name[0] == '\0')
        return tl_fail(error, TL_ERR_ARGUMENT,
                       "no model named; `tally models` lists those built in, a config.json works too");
    tl_quotable(name, strlen(name), quoted, sizeof quoted);
    there = stat(name, &about) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG) {
        char reason[128];
        const char *why = strerror_r(errno, reason, sizeof reason);
        return tl_fail(error, TL_ERR_IO, "%s: %s", quoted, why);
    }
    /* A bare name is the catalogue's; "gpt2" must not change its meaning with the folder one stands in. */
    if (!is_path(name) && (!there || strchr(name, '/') == NULL)) {
        status = tl_catalogue_model(name, model, &unknown);
        if (status == TL_OK && there && model->n_ignored < TL_MODEL_NOTES)
            (void)snprintf(model->ignored[model->n_ignored++], sizeof model->ignored[0],
                           "./%.40s: a file or folder of this name is not what was read; ./%.40s would be", quoted,
                           quoted);
        if (status == TL_OK)
            return TL_OK;
        if (!there)
            return tl_fail(error, status, "%s; there is no file of that name either", unknown.message);
    }
    if (!there)
        return tl_fail(error, TL_ERR_NOT_FOUND,
                       "%s: no such file or folder; a model is a config.json, the folder that holds one, or a name of "
                       "`tally models`",
                       quoted);
    if (S_ISDIR(about.st_mode))
        return read_folder(name, model, error);
    if (ends_in(name, ".gguf"))
        return read_gguf(name, model, error);
    return ends_in(name, ".safetensors") ? read_beside(name, model, error) : tl_config_read(name, model, error);
}
