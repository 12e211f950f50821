/* SPDX-License-Identifier: Apache-2.0 */

/* Contact points as an application may write them. */

#include <assert.h>
#include <string.h>

#include "driver/resolve.h"
#include "serialize/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = cqr_mem_text(data, size);
    if (text == NULL)
        return 0;
    struct contact_point *points = NULL;
    uint32_t count = 0;
    cqlring_error error;
    if (cqr_contact_points_parse(text, 9042, &points, &count, &error) == CQLRING_OK) {
        assert(count > 0 && count <= CONTACT_POINTS_MAX);
        for (uint32_t i = 0; i < count; i++) {
            struct address address;
            assert(points[i].host[0] != '\0' && memchr(points[i].host, '\0', sizeof points[i].host) != NULL);
            if (cqr_address_from_literal(&address, points[i].host, points[i].port)) {
                char formatted[64];
                cqr_address_format(&address, formatted);
            }
        }
        cqr_mem_free(points);
    } else {
        assert(error.status != CQLRING_OK && error.message[0] != '\0');
    }
    cqr_mem_free(text);
    return 0;
}
