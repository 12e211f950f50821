/* SPDX-License-Identifier: Apache-2.0 */
/* The same from C++17: the headers parse, and what they declare has C linkage. */
#include <cqlring.h>
#include <cqlring_types.h>
#include <cqlring_values.h>

#include <iostream>
#include <string_view>

int main()
{
    if (std::string_view{cqlring_status_text(CQLRING_OK)} != "ok")
        return 1;
    std::cout << cqlring_status_name(CQLRING_OK) << '\n';
    return 0;
}
