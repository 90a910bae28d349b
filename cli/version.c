/* cli/version.c: tally version and tally help. */
#include <string.h>

#include "verb.h"

static int run_version(tl_cli *cli) {
    static const tl_column columns[] = {{"version", "version", false, false, false},
                                        {"compiler", "compiler", false, false, false},
                                        {"machine", "machine", false, false, false}};
    static const char compiler[] =
#if defined(__clang__)
        "clang " __clang_version__;
#else
        "gcc " __VERSION__;
#endif
    static const char machine[] =
#if defined(__x86_64__)
        "x86-64";
#elif defined(__aarch64__)
        "aarch64";
#else
            "unknown";
#endif
    if (cli->format == TL_FORMAT_TABLE) {
        tl_out(cli, "tally %s\n", TL_VERSION);
        if (cli->verbosity > 0)
            tl_out(cli, "  %s, %s\n", compiler, machine);
        return TL_EXIT_OK;
    }
    tl_grid *grid = tl_grid_new(columns, 3);
    tl_grid_string(grid, TL_VERSION, NULL);
    tl_grid_string(grid, compiler, NULL);
    tl_grid_string(grid, machine, NULL);
    int status = TL_EXIT_FAILED;
    if (cli->format == TL_FORMAT_JSON) {
        tl_json *json = tl_cli_json_open(cli);
        if (json) {
            tl_grid_json_row(grid, 0, json);
            status = tl_cli_json_close(cli, json);
        }
    } else {
        status = tl_grid_print_record(cli, grid);
    }
    tl_grid_free(grid);
    return status;
}

static const char *name_at(int index) { return tl_verb_at(index)->name; }

static int list_verbs(const tl_cli *cli) {
    static const tl_column columns[] = {{"name", "verb", false, false, false},
                                        {"arguments", "arguments", false, false, false},
                                        {"summary", "summary", false, false, false}};
    tl_grid *grid = tl_grid_new(columns, 3);
    for (int i = 0; i < tl_verb_count(); i++) {
        const tl_verb *verb = tl_verb_at(i);
        tl_grid_string(grid, verb->name, NULL);
        tl_grid_string(grid, verb->arguments, NULL);
        tl_grid_string(grid, verb->summary, NULL);
    }
    int status = tl_grid_print(cli, grid, "verbs");
    tl_grid_free(grid);
    return status;
}

static int run_help(tl_cli *cli) {
    if (!cli->n_arguments)
        return cli->format == TL_FORMAT_TABLE ? tl_cli_help(cli, NULL) : list_verbs(cli);
    const tl_verb *verb = tl_verb_find(cli->arguments[0]);
    if (verb)
        return tl_cli_help(cli, verb);
    const char *near = tl_nearest(cli->arguments[0], name_at, tl_verb_count());
    return tl_usage(cli, "there is no verb \"%.80s\"%s%s%s", cli->arguments[0], near ? ". Did you mean " : "",
                    near ? near : "", near ? "?" : "");
}

const tl_verb tl_verb_version = {
    .name = "version",
    .summary = "the version of this build",
    .group = TL_GROUP_LOOKUP,
    .arguments = "",
    .run = run_version,
};

const tl_verb tl_verb_help = {
    .name = "help",
    .summary = "the verbs, or the options of one",
    .group = TL_GROUP_LOOKUP,
    .arguments = "[VERB]",
    .max_arguments = 1,
    .run = run_help,
};
