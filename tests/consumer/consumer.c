/* SPDX-License-Identifier: Apache-2.0 */
/* A program that uses an installed cqlring, in strict C17. */
#include <cqlring.h>
#include <cqlring_types.h>
#include <cqlring_values.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return puts(cqlring_version()) < 0;
    if (strcmp(cqlring_status_text(CQLRING_OK), "ok") != 0)
        return 1;
    printf("%s\n", cqlring_status_name(CQLRING_OK));
    return 0;
}
