# SPDX-License-Identifier: Apache-2.0
# The other way to use cqlring: its source tree inside an application's build.
cmake_minimum_required(VERSION 3.22)
project(cqlring_embedder LANGUAGES C)
add_subdirectory("${CQLRING_SOURCE_DIR}" cqlring)
add_executable(consumer_embedded "${CONSUMER_SOURCE_DIR}/consumer.c")
target_link_libraries(consumer_embedded PRIVATE cqlring::cqlring)
