/* cli/main.c: finds the verb and runs it. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <string.h>

#include "verb.h"

/* Named in the documentation, not in this build. Saying so beats "unknown". */
static const char *const later[] = {"search", "reconcile", "trace", "report", "mfu", NULL};

static const char *verb_name_at(int index) { return tl_verb_at(index)->name; }

static int unknown_verb(const tl_cli *cli, const char *name) {
    for (int i = 0; later[i]; i++)
        if (strcmp(later[i], name) == 0) {
            tl_say(cli, "`%s' is not in this build (%s); `%s help' lists what is", name, TL_VERSION, cli->program);
            return TL_EXIT_USAGE;
        }
    const char *near = tl_nearest(name, verb_name_at, tl_verb_count());
    if (near)
        tl_say(cli, "there is no verb \"%.80s\". Did you mean `%s %s'?", name, cli->program, near);
    else
        tl_say(cli, "there is no verb \"%.80s\"; `%s help' lists them", name, cli->program);
    return TL_EXIT_USAGE;
}

/* A result that did not reach its file is a failure, however late it shows. */
static int finish(const tl_cli *cli, int status) {
    errno = 0;
    bool bad = ferror(stdout) != 0;
    if (fflush(stdout) != 0)
        bad = true;
    if (!bad)
        return status;
    int reason = errno;
    tl_say(cli, "cannot write the result to standard output%s%s", reason ? ": " : "", reason ? strerror(reason) : "");
    return TL_EXIT_FAILED;
}

static int dispatch(tl_cli *cli, int argc, char **argv) {
    int at = argc;
    int status = tl_cli_parse_global(cli, argc, argv, &at);
    if (status != TL_EXIT_OK)
        return status;
    tl_cli_prepare(cli);
    if (at >= argc) {
        if (cli->help)
            return tl_cli_help(cli, NULL);
        tl_say(cli, "a verb is missing; `%s help' lists them", cli->program);
        return TL_EXIT_USAGE;
    }
    const tl_verb *verb = tl_verb_find(argv[at]);
    if (!verb)
        return unknown_verb(cli, argv[at]);
    if (cli->help)
        return tl_cli_help(cli, verb);
    cli->verb = verb;
    status = tl_cli_parse(cli, argc - at, argv + at);
    if (status != TL_EXIT_OK)
        return status;
    tl_cli_prepare(cli);
    return cli->help ? tl_cli_help(cli, verb) : verb->run(cli);
}

/* With 0, 1 or 2 closed (>&-) the next file opened, a checkpoint say, would be given that number and get what is printed.
 * They are opened the wrong way round, so that writing a result there still fails and is reported. */
static bool hold_standard_files(void) {
    for (int file = 0; file < 3; file++)
        if (fcntl(file, F_GETFD) == -1 && open("/dev/null", file == 0 ? O_WRONLY : O_RDONLY) != file)
            return false;
    return true;
}

int main(int argc, char **argv) {
    static tl_cli cli; /* zeroed; large enough that the stack is no place for it */
    cli.program = "tally";
    if (!hold_standard_files())
        return TL_EXIT_FAILED;
    /* The character set only: numbers keep their point whatever the country. */
    setlocale(LC_CTYPE, "");
    argp_err_exit_status = TL_EXIT_USAGE;
    return finish(&cli, argc > 0 ? dispatch(&cli, argc, argv) : TL_EXIT_USAGE);
}
