/* The thread pool: every task once, results visible, whatever the number of threads. Meant to run under TSan too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/pool.h"

enum { TASKS = 1000 };

typedef struct job {
    int count[TASKS]; /* plain on purpose: TSan would see two threads on one task */
    int64_t value[TASKS];
    int64_t per_thread[16];
} job;

static void work(void *arg, int64_t task, int thread) {
    job *j = arg;
    j->count[task]++;
    j->value[task] = task * task;
    j->per_thread[thread]++;
}

static void check_job(tl_pool *pool, job *j, int64_t tasks) {
    memset(j, 0, sizeof *j);
    tl_pool_run(pool, tasks, work, j);
    int64_t sum = 0;
    for (int t = 0; t < 16; t++)
        sum += j->per_thread[t];
    assert_true(sum == tasks);
    for (int64_t i = 0; i < TASKS; i++) {
        assert_int_equal(j->count[i], i < tasks);
        assert_true(j->value[i] == (i < tasks ? i * i : 0));
    }
}

static void test_every_task_once(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 3, 8};
    static job j;
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        tl_pool *pool = NULL;
        tl_error error = {0};
        assert_int_equal(tl_pool_open(NULL, threads[i], &pool, &error), TL_OK);
        assert_int_equal(tl_pool_threads(pool), threads[i]);
        for (int round = 0; round < 100; round++) {
            check_job(pool, &j, round % 7);
            check_job(pool, &j, TASKS - round);
        }
        check_job(pool, &j, 0);
        tl_pool_run(pool, -5, work, &j);
        tl_pool_close(pool);
    }
    check_job(NULL, &j, TASKS);
    tl_pool_close(NULL);
}

static void nap(long nanoseconds) {
    const struct timespec time = {0, nanoseconds};
    nanosleep(&time, NULL);
}

static void slow_work(void *arg, int64_t task, int thread) {
    work(arg, task, thread);
    nap(300000);
}

/* Longer than the spinning, so that workers fall asleep between jobs and the caller at the end of one. */
static void test_sleep_and_wake(void **state) {
    (void)state;
    static job j;
    tl_pool *pool = NULL;
    assert_int_equal(tl_pool_open(NULL, 4, &pool, NULL), TL_OK);
    for (int round = 0; round < 20; round++) {
        nap(1000000);
        memset(&j, 0, sizeof j);
        tl_pool_run(pool, 9, slow_work, &j);
        for (int i = 0; i < 9; i++)
            assert_int_equal(j.count[i], 1);
    }
    tl_pool_close(pool);
}

/* Tasks that wait for each other: the job ends only if as many threads as promised really work. */
static void meet(void *arg, int64_t task, int thread) {
    (void)task;
    (void)thread;
    atomic_int *here = arg;
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < 3)
        nap(10000);
}

static void test_threads_work_together(void **state) {
    (void)state;
    tl_pool *pool = NULL;
    assert_int_equal(tl_pool_open(NULL, 3, &pool, NULL), TL_OK);
    for (int round = 0; round < 50; round++) {
        atomic_int here = 0;
        tl_pool_run(pool, 3, meet, &here);
        assert_int_equal(atomic_load(&here), 3);
    }
    tl_pool_close(pool);
}

static atomic_int start_calls;
static _Thread_local int started_here;
static void count_start(void) {
    started_here++;
    atomic_fetch_add(&start_calls, 1);
}

static void meet_started(void *arg, int64_t task, int thread) {
    if (started_here != 1)
        atomic_store((atomic_int *)arg, -100);
    meet(arg, task, thread);
}

static void test_start_hook_runs_once_each(void **state) {
    (void)state;
    tl_pool *pool = NULL;
    assert_int_equal(tl_pool_open(NULL, 3, &pool, NULL), TL_OK);
    tl_pool_on_start(pool, count_start);
    assert_int_equal(started_here, 1);
    assert_int_equal(atomic_load(&start_calls), 3); /* and not with some later job */
    for (int round = 0; round < 5; round++) {
        atomic_int here = 0;
        tl_pool_run(pool, 3, meet_started, &here);
        assert_int_equal(atomic_load(&here), 3);
    }
    assert_int_equal(atomic_load(&start_calls), 3);
    tl_pool_close(pool);
}

static atomic_int hook_calls;
static void count_hook(void) { atomic_fetch_add(&hook_calls, 1); }

static void test_start_hook_waits_for_all(void **state) {
    (void)state;
    for (int round = 1; round <= 200; round++) {
        tl_pool *pool = NULL;
        assert_int_equal(tl_pool_open(NULL, 4, &pool, NULL), TL_OK);
        atomic_store(&hook_calls, 0);
        for (int again = 1; again <= 3; again++) {
            tl_pool_on_start(pool, count_hook);
            assert_int_equal(atomic_load(&hook_calls), 4 * again);
            atomic_int here = 0;
            if (round % 2)
                tl_pool_run(pool, 4, meet, &here);
        }
        tl_pool_close(pool);
    }
}

static void test_refusals(void **state) {
    (void)state;
    static const int wrong[] = {0, -1, TL_POOL_MAX_THREADS + 1};
    for (int i = 0; i < 3; i++) {
        tl_pool *pool = (tl_pool *)&wrong;
        tl_error error = {0};
        assert_int_equal(tl_pool_open(NULL, wrong[i], &pool, &error), TL_ERR_ARGUMENT);
        assert_null(pool);
        assert_non_null(strstr(error.message, "threads"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_task_once),          cmocka_unit_test(test_sleep_and_wake),
        cmocka_unit_test(test_threads_work_together),    cmocka_unit_test(test_start_hook_runs_once_each),
        cmocka_unit_test(test_start_hook_waits_for_all), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
