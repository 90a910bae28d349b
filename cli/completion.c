/* cli/completion.c: tally completion bash, a script made from the tables of verbs and options. */
#include <string.h>

#include "verb.h"

static void put_option(void *self, const struct argp_option *option) {
    const tl_cli *cli = self;
    tl_out(cli, " --%s", option->name);
    if (option->key > ' ' && option->key < 127)
        tl_out(cli, " -%c", option->key);
}

/* "time) options='…'; words='…' ;;" */
static void put_verb(tl_cli *cli, const tl_verb *verb) {
    tl_out(cli, "    %s)\n        options='", verb->name);
    tl_cli_options_each(verb, put_option, cli);
    tl_out(cli, "'\n        words='%s", verb->words ? verb->words : "");
    if (strcmp(verb->name, "gpus") == 0)
        for (int i = 0; i < tl_accelerator_count(); i++)
            if (!strpbrk(tl_accelerator_at(i)->name, " ()'"))
                tl_out(cli, " %s", tl_accelerator_at(i)->name);
    if (strstr(verb->arguments, "MODEL"))
        for (int i = 0; i < tl_catalogue_count(); i++)
            tl_out(cli, " %s", tl_catalogue_name(i));
    if (strstr(verb->arguments, "VERB"))
        for (int i = 0; i < tl_verb_count(); i++)
            tl_out(cli, " %s", tl_verb_at(i)->name);
    tl_out(cli, "' ;;\n");
}

static void put_values(tl_cli *cli) {
    tl_out(cli, "    case $previous in\n"
                "    --format) COMPREPLY=($(compgen -W 'table md csv json' -- \"$current\")); return ;;\n"
                "    --units) COMPREPLY=($(compgen -W 'si iec' -- \"$current\")); return ;;\n"
                "    --color) COMPREPLY=($(compgen -W 'auto always never' -- \"$current\")); return ;;\n"
                "    --solve) COMPREPLY=($(compgen -W 'params tokens gpus mfu time' -- \"$current\")); return ;;\n");
    for (int i = 0; i < TL_OPTION_COUNT; i++) {
        const char *const *choices = tl_option_choices((tl_option)i);
        if (!choices)
            continue;
        tl_out(cli, "    --%s) COMPREPLY=($(compgen -W '", tl_option_name((tl_option)i));
        for (int c = 0; choices[c]; c++)
            tl_out(cli, "%s%s", c ? " " : "", choices[c]);
        tl_out(cli, "' -- \"$current\")); return ;;\n");
    }
    tl_out(cli, "    -g|--gpus) COMPREPLY=($(compgen -W 'here");
    for (int i = 0; i < tl_accelerator_count(); i++)
        if (!strpbrk(tl_accelerator_at(i)->name, " ()'"))
            tl_out(cli, " %s", tl_accelerator_at(i)->name);
    tl_out(cli, "' -- \"$current\")); return ;;\n    esac\n");
}

static int run(tl_cli *cli) {
    if (strcmp(cli->arguments[0], "bash") != 0)
        return tl_usage(cli, "\"%.80s\": this build completes for bash only", cli->arguments[0]);
    if (cli->format != TL_FORMAT_TABLE)
        return tl_usage(cli, "a completion script has one form: leave out --format and --json");
    tl_out(cli, "# Completion of tally for bash: eval \"$(tally completion bash)\"\n"
                "_tally() {\n"
                "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb= options= "
                "words= word i\n");
    put_values(cli);
    tl_out(cli, "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
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
    for (int i = 0; i < tl_verb_count(); i++)
        put_verb(cli, tl_verb_at(i));
    tl_out(cli, "    esac\n"
                "    case $current in\n"
                "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
                "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
                "    esac\n"
                "}\n"
                "complete -o default -F _tally tally\n");
    return TL_EXIT_OK;
}

const tl_verb tl_verb_completion = {
    .name = "completion",
    .summary = "a completion script for the shell",
    .group = TL_GROUP_LOOKUP,
    .arguments = "bash",
    .words = "bash",
    .details = "  eval \"$(tally completion bash)\"     in ~/.bashrc",
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run,
};
