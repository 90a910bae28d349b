/* cli/completion.c: tally completion bash|zsh|fish, a script made from the tables of verbs and options. */
#include <string.h>

#include "verb.h"

/* Values of options whose texts are not in the table of common options, one meaning in every verb. */
static const struct {
    const char *name, *values;
} known_values[] = {
    {"format", "table md csv json"},
    {"units", "si iec"},
    {"color", "auto always never"},
    {"solve", "params tokens gpus mfu time"},
    {"by", "category module op line phase"},
    {"at", "forward loss backward step peak"},
    {"schedule", "constant linear cosine wsd wsd-sqrt"},
    {"sampler", "random epochs"},
    {"lock-batches", "yes no"},
    {"form", "raw llmc npy"},
    {"data-form", "raw llmc npy"},
    {"data-dtype", "uint16 uint32"},
    {"special", "text encode refuse"},
    {"weights", "stored f32 bf16 f16 int8"},
    {"cache", "f32 bf16 f16"},
    {"as", "bf16 f8e4m3 f8e5m2"},
};
enum { KNOWN_VALUES = sizeof known_values / sizeof known_values[0] };

static void put_devices(const tl_cli *cli) {
    tl_out(cli, "here");
    for (int i = 0; i < tl_accelerator_count(); i++)
        if (!strpbrk(tl_accelerator_at(i)->name, " ()'"))
            tl_out(cli, " %s", tl_accelerator_at(i)->name);
}

/* The values of a common option, blanks between them. */
static void put_choices(const tl_cli *cli, tl_option option) {
    const char *const *choices = tl_option_choices(option);
    for (int c = 0; choices[c]; c++)
        tl_out(cli, "%s%s", c ? " " : "", choices[c]);
}

/* What a verb's arguments may be, blanks between them. */
static void put_words(const tl_cli *cli, const tl_verb *verb) {
    tl_out(cli, "%s", verb->words ? verb->words : "");
    if (strcmp(verb->name, "gpus") == 0) {
        tl_out(cli, " ");
        put_devices(cli);
    }
    if (strstr(verb->arguments, "MODEL"))
        for (int i = 0; i < tl_catalogue_count(); i++)
            tl_out(cli, " %s", tl_catalogue_name(i));
    if (strstr(verb->arguments, "VERB"))
        for (int i = 0; i < tl_verb_count(); i++)
            tl_out(cli, " %s", tl_verb_at(i)->name);
}

/* Text within single quotes: all three shells end them, give a quote of its own, and begin anew. */
static void put_quoted(const tl_cli *cli, const char *text) {
    for (; *text; text++)
        if (*text == '\'')
            tl_out(cli, "'\\''");
        else
            tl_out(cli, "%c", *text);
}

/* ---- bash and zsh: a case for each verb and for each option before the cursor ---- */

static void put_option(void *self, const struct argp_option *option) {
    const tl_cli *cli = self;
    tl_out(cli, " --%s", option->name);
    if (option->key > ' ' && option->key < 127)
        tl_out(cli, " -%c", option->key);
}

/* 'name:what it is', as zsh's _describe reads it */
static void put_described(void *self, const struct argp_option *option) {
    const tl_cli *cli = self;
    if (option->key > ' ' && option->key < 127) {
        tl_out(cli, " '-%c:", option->key);
        put_quoted(cli, option->doc);
        tl_out(cli, "'");
    }
    tl_out(cli, " '--%s:", option->name);
    put_quoted(cli, option->doc);
    tl_out(cli, "'");
}

/* "--units) COMPREPLY=(…); return ;;" of each; `before` and `after` are the shell's. */
static void put_values(const tl_cli *cli, const char *before, const char *after) {
    for (int i = 0; i < KNOWN_VALUES; i++)
        tl_out(cli, "    --%s) %s%s%s; return ;;\n", known_values[i].name, before, known_values[i].values, after);
    for (int i = 0; i < TL_OPTION_COUNT; i++)
        if (tl_option_choices((tl_option)i)) {
            tl_out(cli, "    --%s) %s", tl_option_name((tl_option)i), before);
            put_choices(cli, (tl_option)i);
            tl_out(cli, "%s; return ;;\n", after);
        }
    tl_out(cli, "    -g|--gpus|--on) %s", before);
    put_devices(cli);
    tl_out(cli, "%s; return ;;\n", after);
}

static void put_bash(tl_cli *cli) {
    tl_out(cli, "# Completion of tally for bash: eval \"$(tally completion bash)\"\n"
                "_tally() {\n"
                "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb= options= "
                "words= word i\n"
                "    case $previous in\n");
    put_values(cli, "COMPREPLY=($(compgen -W '", "' -- \"$current\"))");
    tl_out(cli, "    esac\n"
                "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                "        word=${COMP_WORDS[i]}\n"
                "        case $word in\n"
                "        --format|--units|--color) ((i++)) ;;\n"
                "        -*|=) ;;\n"
                "        *) verb=$word; break ;;\n"
                "        esac\n"
                "    done\n"
                "    case $verb in\n"
                "    '')\n        options='");
    tl_cli_options_each(NULL, put_option, cli);
    tl_out(cli, "'\n        words='");
    for (int i = 0; i < tl_verb_count(); i++)
        tl_out(cli, "%s%s", i ? " " : "", tl_verb_at(i)->name);
    tl_out(cli, "' ;;\n");
    for (int i = 0; i < tl_verb_count(); i++) {
        tl_out(cli, "    %s)\n        options='", tl_verb_at(i)->name);
        tl_cli_options_each(tl_verb_at(i), put_option, cli);
        tl_out(cli, "'\n        words='");
        put_words(cli, tl_verb_at(i));
        tl_out(cli, "' ;;\n");
    }
    tl_out(cli, "    esac\n"
                "    case $current in\n"
                "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
                "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
                "    esac\n"
                "}\n"
                "complete -o default -F _tally tally\n");
}

static void put_zsh(tl_cli *cli) {
    tl_out(
        cli,
        "#compdef tally\n"
        "# Completion of tally for zsh: eval \"$(tally completion zsh)\" after compinit, or a file _tally in $fpath\n"
        "_tally() {\n"
        "    local verb= word i\n"
        "    local -a options arguments\n"
        "    case ${words[CURRENT-1]} in\n");
    put_values(cli, "compadd -- ", "");
    tl_out(cli, "    esac\n"
                "    for ((i = 2; i < CURRENT; i++)); do\n"
                "        word=${words[i]}\n"
                "        case $word in\n"
                "        --format|--units|--color) ((i++)) ;;\n"
                "        -*) ;;\n"
                "        *) verb=$word; break ;;\n"
                "        esac\n"
                "    done\n"
                "    case $verb in\n"
                "    '')\n        options=(");
    tl_cli_options_each(NULL, put_described, cli);
    tl_out(cli, ")\n        arguments=(");
    for (int i = 0; i < tl_verb_count(); i++) {
        tl_out(cli, " '%s:", tl_verb_at(i)->name);
        put_quoted(cli, tl_verb_at(i)->summary);
        tl_out(cli, "'");
    }
    tl_out(cli, ") ;;\n");
    for (int i = 0; i < tl_verb_count(); i++) {
        tl_out(cli, "    %s)\n        options=(", tl_verb_at(i)->name);
        tl_cli_options_each(tl_verb_at(i), put_described, cli);
        tl_out(cli, ")\n        arguments=(");
        put_words(cli, tl_verb_at(i));
        tl_out(cli, ") ;;\n");
    }
    tl_out(cli, "    esac\n"
                "    case ${words[CURRENT]} in\n"
                "    -*) _describe -o option options ;;\n"
                "    *) [[ -z $verb ]] && { _describe verb arguments; return }\n"
                "        compadd -a arguments\n"
                "        _files ;;\n"
                "    esac\n"
                "}\n"
                "if [[ ${funcstack[1]} = _tally ]]; then _tally \"$@\"; else compdef _tally tally; fi\n");
}

/* ---- fish: a line for each verb and for each of its options ---- */

typedef struct fish {
    const tl_cli *cli;
    const tl_verb *verb; /* NULL: before a verb is said */
} fish;

static void put_fish_option(void *self, const struct argp_option *option) {
    const fish *f = self;
    const tl_cli *cli = f->cli;
    tl_out(cli, "complete -c tally -n '%s%s' -l %s", f->verb ? "__fish_seen_subcommand_from " : "__fish_use_subcommand",
           f->verb ? f->verb->name : "", option->name);
    if (option->key > ' ' && option->key < 127)
        tl_out(cli, " -s %c", option->key);
    if (option->arg)
        tl_out(cli, " -r");
    for (int i = 0; i < KNOWN_VALUES; i++)
        if (strcmp(known_values[i].name, option->name) == 0)
            tl_out(cli, " -f -a '%s'", known_values[i].values);
    for (int i = 0; i < TL_OPTION_COUNT; i++)
        if (tl_option_choices((tl_option)i) && strcmp(tl_option_name((tl_option)i), option->name) == 0) {
            tl_out(cli, " -f -a '");
            put_choices(cli, (tl_option)i);
            tl_out(cli, "'");
        }
    if (strcmp(option->name, "gpus") == 0 || strcmp(option->name, "on") == 0) {
        tl_out(cli, " -f -a '");
        put_devices(cli);
        tl_out(cli, "'");
    }
    tl_out(cli, " -d '");
    put_quoted(cli, option->doc);
    tl_out(cli, "'\n");
}

static void put_fish(tl_cli *cli) {
    tl_out(cli, "# Completion of tally for fish: tally completion fish | source\n");
    fish f = {cli, NULL};
    tl_cli_options_each(NULL, put_fish_option, &f);
    for (int i = 0; i < tl_verb_count(); i++) {
        tl_out(cli, "complete -c tally -n '__fish_use_subcommand' -f -a %s -d '", tl_verb_at(i)->name);
        put_quoted(cli, tl_verb_at(i)->summary);
        tl_out(cli, "'\n");
    }
    for (int i = 0; i < tl_verb_count(); i++) {
        f.verb = tl_verb_at(i);
        tl_cli_options_each(f.verb, put_fish_option, &f);
        tl_out(cli, "complete -c tally -n '__fish_seen_subcommand_from %s' -a '", f.verb->name);
        put_words(cli, f.verb);
        tl_out(cli, "'\n");
    }
}

static int run(tl_cli *cli) {
    static const struct {
        const char *name;
        void (*put)(tl_cli *);
    } shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};
    if (cli->format != TL_FORMAT_TABLE)
        return tl_usage(cli, "a completion script has one form: leave out --format and --json");
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(cli->arguments[0], shells[i].name) == 0) {
            shells[i].put(cli);
            return TL_EXIT_OK;
        }
    return tl_usage(cli, "\"%.80s\": bash, zsh and fish would work", cli->arguments[0]);
}

const tl_verb tl_verb_completion = {
    .name = "completion",
    .summary = "a completion script for the shell",
    .group = TL_GROUP_LOOKUP,
    .arguments = "bash|zsh|fish",
    .words = "bash zsh fish",
    .details = "  eval \"$(tally completion bash)\"     in ~/.bashrc\n"
               "  eval \"$(tally completion zsh)\"      in ~/.zshrc, after compinit\n"
               "  tally completion fish | source      in ~/.config/fish/config.fish",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
