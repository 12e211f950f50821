# SPDX-License-Identifier: Apache-2.0
# How our own targets are compiled. Nothing here reaches those who link cqlring.
include(CheckCCompilerFlag)

add_compile_definitions(_GNU_SOURCE=)

# Flags every object of the build has to agree on.
if(CQLRING_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "CQLRING_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link,address -fno-omit-frame-pointer)
    add_link_options(-fsanitize=address)
elseif(CQLRING_SANITIZE)
    add_compile_options(-fsanitize=${CQLRING_SANITIZE} -fno-sanitize-recover=all
        -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${CQLRING_SANITIZE})
endif()
if(CQLRING_COVERAGE)
    add_compile_options(--coverage -fprofile-update=atomic)
    add_link_options(--coverage)
endif()
if(CQLRING_LTO)
    # Fat objects: libcqlring.a must also link where another compiler, or none of its plugins, is used.
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        set(CQLRING_LTO_COMPILE -flto=auto -ffat-lto-objects)
        add_link_options(-flto=auto)
    else()
        message(STATUS "cqlring: link-time optimisation is set up for gcc only; going without")
    endif()
endif()

# The warnings of style.md, for a target of ours.
function(cqlring_compile_options target)
    target_compile_options(${target} PRIVATE
        -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes -Wvla
        ${CQLRING_LTO_COMPILE})
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # Messages of bounded length are cut by snprintf on purpose.
        target_compile_options(${target} PRIVATE -Wno-format-truncation)
    endif()
    if(CQLRING_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
endfunction()

# A target that may see the whole tree: includes are written "cql/frame.h".
function(cqlring_internal target)
    cqlring_compile_options(${target})
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" "${CQLRING_FLAT_INCLUDE}")
endfunction()

# The sources of a folder, or an empty file where it has none yet.
function(cqlring_glob out pattern)
    file(GLOB sources CONFIGURE_DEPENDS "${pattern}")
    if(NOT sources)
        set(empty "${PROJECT_BINARY_DIR}/empty.c")
        if(NOT EXISTS "${empty}")
            file(WRITE "${empty}" "typedef int cqlring_no_source_yet;\n")
        endif()
        set(sources "${empty}")
    endif()
    set(${out} "${sources}" PARENT_SCOPE)
endfunction()

# One layer: compiled once, position independent, as an object library for the libraries and as the archive
# <target>_archive for the tests: a test of one module then needs what that module calls and no more.
function(cqlring_layer target folder)
    cqlring_glob(sources "${PROJECT_SOURCE_DIR}/${folder}/*.c")
    add_library(${target} OBJECT ${sources})
    cqlring_internal(${target})
    set_target_properties(${target} PROPERTIES
        POSITION_INDEPENDENT_CODE ON
        C_VISIBILITY_PRESET hidden)
    add_library(${target}_archive STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${target}>)
    set_target_properties(${target}_archive PROPERTIES LINKER_LANGUAGE C)
    target_link_libraries(${target} PRIVATE ${ARGN})
    target_link_libraries(${target}_archive PUBLIC ${ARGN})
endfunction()
