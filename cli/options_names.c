/* cli/options_names.c: the names on a command line, looked at before argp parses it, so that an unknown option is answered with the
 * nearest one and an option of other verbs with their names: getopt would say only "unrecognized".
 */
#include <string.h>

#include "options.h"

/* *other: a second one that begins like this, else NULL. */
static const struct argp_option *find_long(const struct argp_option *options, const char *name, size_t length,
                                           const struct argp_option **other) {
    const struct argp_option *prefix = NULL;
    *other = NULL;
    for (const struct argp_option *option = options; option->name || option->doc; option++) {
        if (!option->name || strncmp(option->name, name, length) != 0)
            continue;
        if (option->name[length] == '\0') {
            *other = NULL;
            return option;
        }
        if (prefix)
            *other = option;
        else
            prefix = option;
    }
    return length ? prefix : NULL;
}

static const struct argp_option *find_letter(const struct argp_option *options, int letter) {
    for (const struct argp_option *option = options; option->name || option->doc; option++)
        if (option->name && option->key == letter && letter > ' ' && letter < 127)
            return option;
    return NULL;
}

static int unknown_option(const tl_cli *cli, const struct argp_option *options, const char *name, size_t length) {
    char asked[64];
    const char *names[TL_MERGED];
    int n = 0;
    snprintf(asked, sizeof asked, "%.*s", (int)(length < 60 ? length : 60), name);
    for (int i = 0; i < tl_verb_count(); i++) {
        const tl_verb *verb = tl_verb_at(i);
        for (const struct argp_option *own = verb->own; own && own->name; own++)
            if (verb != cli->verb && strcmp(own->name, asked) == 0)
                return tl_usage(cli, "%s%s%s has no option --%s; `%s' has", cli->verb ? "`" : "",
                                cli->verb ? cli->verb->name : cli->program, cli->verb ? "'" : "", asked, verb->name);
    }
    for (const struct argp_option *option = options; option->name || option->doc; option++)
        if (option->name && !(option->flags & OPTION_HIDDEN))
            names[n++] = option->name;
    names[n] = NULL;
    const char *near = tl_nearest_of(asked, names);
    return tl_usage(cli, "there is no option --%s%s%s%s", asked, near ? ". Did you mean --" : "", near ? near : "",
                    near ? "?" : "");
}

int tl_options_scan(const tl_cli *cli, const struct argp_option *options, int argc, char **argv, bool in_order) {
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        const struct argp_option *option = NULL;
        bool attached = false;
        if (text[0] != '-' || text[1] == '\0') {
            if (in_order)
                return TL_EXIT_OK;
            continue;
        }
        if (strcmp(text, "--") == 0)
            return TL_EXIT_OK;
        if (text[1] == '-') {
            size_t length = strcspn(text + 2, "=");
            const struct argp_option *other;
            option = find_long(options, text + 2, length, &other);
            if (!option)
                return unknown_option(cli, options, text + 2, length);
            if (other)
                return tl_usage(cli, "--%.*s could be --%s or --%s", (int)length, text + 2, option->name, other->name);
            attached = text[2 + length] == '=';
            if (attached && !option->arg)
                return tl_usage(cli, "--%s takes no value", option->name);
        } else {
            for (const char *letter = text + 1; *letter && !attached; letter++) {
                option = find_letter(options, (unsigned char)*letter);
                if (!option)
                    return tl_usage(cli, "there is no option -%c in \"%.80s\"", *letter, text);
                attached = option->arg && letter[1];
            }
        }
        if (option->arg && !attached && ++i >= argc)
            return tl_usage(cli, "--%s needs a value: %s", option->name, option->arg);
    }
    return TL_EXIT_OK;
}
