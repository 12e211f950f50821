/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over the files of its corpus, for compilers without libFuzzer.

   Each argument is a file, or a folder whose files are taken (not its sub-folders). Ends with
   `N files`; an argument that cannot be read, or no file at all, is a failure: a corpus that got
   lost must not pass silently. */

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    /* The target gets memory of exactly the input's size, so that a sanitizer sees one byte too far. */
    size_t size = 0;
    struct stat info;
    uint8_t *data = NULL;
    bool whole = fstat(fileno(file), &info) == 0;
    if (whole && info.st_size > 0) {
        size = (size_t)info.st_size;
        data = malloc(size);
        whole = data != NULL && fread(data, 1, size, file) == size;
    }
    fclose(file);
    if (whole)
        (void)LLVMFuzzerTestOneInput(data, size);
    else
        fprintf(stderr, "%s: cannot be read\n", path);
    free(data);
    return whole;
}

static bool replay_folder(const char *path, unsigned long *count)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    bool all = true;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char name[4096];
        int length = snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        struct stat info;
        if (length < 0 || (size_t)length >= sizeof name || stat(name, &info) != 0) {
            fprintf(stderr, "%s/%s: cannot be read\n", path, entry->d_name);
            all = false;
        } else if (S_ISREG(info.st_mode)) {
            all = replay_file(name) && all;
            ++*count;
        }
    }
    closedir(folder);
    return all;
}

int main(int argc, char **argv)
{
    bool all = true;
    unsigned long count = 0;
    for (int i = 1; i < argc; ++i) {
        struct stat info;
        if (stat(argv[i], &info) == 0 && S_ISREG(info.st_mode)) {
            all = replay_file(argv[i]) && all;
            ++count;
        } else {
            all = replay_folder(argv[i], &count) && all;
        }
    }
    printf("%lu files\n", count);
    return all && count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
