/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

/* Reads what the stock Python driver wrote: pytool.py write-types comes first. See live.h for how to run it. */

int main(void)
{
    if (!live_read_environment()) {
        puts("CQLRING_LIVE_HOST is not set: there is no server to test against");
        return 77;
    }
    live_types_written_by(&(struct live_way){5, CQLRING_COMPRESSION_LZ4}, 'p');
    live_types_written_by(&(struct live_way){4, CQLRING_COMPRESSION_NONE}, 'p');
    printf("%u passed, %u failed\n", live_passed, live_failed);
    return live_failed > 0 || live_passed == 0;
}
