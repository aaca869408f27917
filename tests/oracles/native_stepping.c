/* Runs one work group of a kernel that PoCL compiled, an instruction at a time, and counts.
 *
 * The caller describes the group on standard input, with numbers in decimal:
 *
 *     OBJECT FUNCTION MOST_STEPS
 *     the group's number (3), numbers of groups (3), global offset (3), shape of the group (3)
 *     how many arguments; of each: "array ADDRESS BYTES_BEFORE BYTES_BEHIND"
 *     or "value BYTES" and so many bytes
 *
 * Arrays are mapped at the addresses that are asked for, and hold zeros. The function is called as
 * PoCL 3.1 does: with an array of pointers to arguments, a context, and the group's number. A child
 * process calls it; this process steps through it (ptrace) and prints "ADDRESS COUNT" for each
 * instruction of the object, addresses as in the file, and "outside COUNT". Two steps at the same place
 * count once: they are repetitions of an instruction with a prefix, or a gather or scatter that a page
 * fault interrupted. (No loop is a single instruction.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_ARGUMENTS 256

struct context {
    size_t groups[3], offset[3], shape[3];
    unsigned char *printed;
    unsigned *printed_position;
    unsigned printed_capacity, work_dimensions;
};

typedef void group_function(void **arguments, struct context *context, size_t, size_t, size_t);

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static size_t number(void)
{
    size_t value;
    if (scanf("%zu", &value) != 1)
        fail("standard input", "a number is missing");
    return value;
}

static void *read_argument(void)
{
    char kind[16];
    if (scanf("%15s", kind) != 1)
        fail("standard input", "an argument is missing");
    if (strcmp(kind, "array") == 0) {
        size_t address = number(), before = number(), behind = number();
        void *wanted = (void *)(address - before);
        void *found = mmap(wanted, before + behind, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (found != wanted)
            fail("mmap", strerror(errno));
        void **cell = malloc(sizeof *cell);
        *cell = (void *)address;
        return cell;
    }
    size_t size = number();
    unsigned char *cell = aligned_alloc(128, 128);
    for (size_t place = 0; place < size; place++)
        cell[place] = (unsigned char)number();
    return cell;
}

static void find_end(struct dl_phdr_info *info, uintptr_t *end)
{
    for (int part = 0; part < info->dlpi_phnum; part++) {
        uintptr_t last = info->dlpi_phdr[part].p_vaddr + info->dlpi_phdr[part].p_memsz;
        if (info->dlpi_phdr[part].p_type == PT_LOAD && last > *end)
            *end = last;
    }
}

struct object {
    uintptr_t base, end;
};

static int find_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct object *object = data;
    (void)size;
    if (info->dlpi_addr != object->base)
        return 0;
    find_end(info, &object->end);
    return 1;
}

static long step(pid_t child, int *status)
{
    if (ptrace(PTRACE_SINGLESTEP, child, 0, 0) < 0 || waitpid(child, status, 0) < 0)
        fail("ptrace", strerror(errno));
    if (WIFEXITED(*status) || WIFSIGNALED(*status))
        fail("the kernel", "the process ended");
    if (WSTOPSIG(*status) != SIGTRAP)
        fail("the kernel", strsignal(WSTOPSIG(*status)));
    return ptrace(PTRACE_PEEKUSER, child, offsetof(struct user_regs_struct, rip), 0);
}

static uintptr_t stack_of(pid_t child)
{
    return (uintptr_t)ptrace(PTRACE_PEEKUSER, child, offsetof(struct user_regs_struct, rsp), 0);
}

int main(void)
{
    char path[4096], name[1024];
    if (scanf("%4095s %1023s", path, name) != 2)
        fail("standard input", "no object and function");
    size_t most = number(), group[3];
    struct context context = {.work_dimensions = 3};
    static unsigned char printed[1 << 12];
    static unsigned position;
    context.printed = printed;
    context.printed_position = &position;
    context.printed_capacity = sizeof printed;
    for (int axis = 0; axis < 3; axis++)
        group[axis] = number();
    for (int place = 0; place < 9; place++)
        (place < 3 ? context.groups : place < 6 ? context.offset : context.shape)[place % 3] = number();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail("dlopen", dlerror());
    group_function *function = (group_function *)dlsym(library, name);
    Dl_info info;
    if (!function || !dladdr((void *)function, &info))
        fail("dlsym", name);
    struct object object = {.base = (uintptr_t)info.dli_fbase};
    dl_iterate_phdr(find_object, &object);
    uint64_t *counts = calloc(object.end, sizeof *counts);
    void *arguments[MOST_ARGUMENTS];
    size_t number_of_arguments = number();
    if (number_of_arguments > MOST_ARGUMENTS)
        fail("standard input", "too many arguments");
    for (size_t place = 0; place < number_of_arguments; place++)
        arguments[place] = read_argument();

    cpu_set_t one; /* both processes on one processor: a step is a change of processes */
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);

    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) < 0)
            fail("ptrace", strerror(errno));
        raise(SIGSTOP);
        function(arguments, &context, group[0], group[1], group[2]);
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0)
        fail("fork", strerror(errno));
    if (!WIFSTOPPED(status))
        fail("ptrace", "the child does not stop");
    ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL);
    uintptr_t place;
    do
        place = (uintptr_t)step(child, &status);
    while (place != (uintptr_t)function);
    uintptr_t bottom = stack_of(child), before = 0;
    uint64_t outside = 0, steps = 0;
    while (1) {
        int is_inside = place - object.base < object.end;
        if (!is_inside && stack_of(child) > bottom)
            break;
        if (place != before) {
            if (is_inside)
                counts[place - object.base]++;
            else
                outside++;
        }
        if (++steps > most)
            fail("gave up", "too many steps");
        before = place;
        place = (uintptr_t)step(child, &status);
    }
    kill(child, SIGKILL);
    for (uintptr_t offset = 0; offset < object.end; offset++)
        if (counts[offset])
            printf("%" PRIuPTR " %" PRIu64 "\n", offset, counts[offset]);
    printf("outside %" PRIu64 "\n", outside);
    return 0;
}
