# SPDX-License-Identifier: Apache-2.0
# The libraries beneath cqlring. Used by the build and, installed, by those who link libcqlring.a.
#
#   cqlring_find_dependencies(REQUIRED)   a missing one is an error
#   cqlring_find_dependencies()           sets CQLRING_DEPENDENCIES_FOUND
#
# libev comes without a .pc file and lz4 without a CMake package in most distributions, so both are
# looked up here and become cqlring::ev and cqlring::lz4.

function(_cqlring_find_library target header library hint)
    if(TARGET ${target})
        return()
    endif()
    string(MAKE_C_IDENTIFIER "CQLRING_${library}" variable)
    find_path(${variable}_INCLUDE_DIR ${header} PATH_SUFFIXES libev)
    find_library(${variable}_LIBRARY ${library})
    mark_as_advanced(${variable}_INCLUDE_DIR ${variable}_LIBRARY)
    if(${variable}_INCLUDE_DIR AND ${variable}_LIBRARY)
        add_library(${target} UNKNOWN IMPORTED)
        set_target_properties(${target} PROPERTIES
            IMPORTED_LOCATION "${${variable}_LIBRARY}"
            INTERFACE_INCLUDE_DIRECTORIES "${${variable}_INCLUDE_DIR}")
    else()
        message(${CQLRING_DEPENDENCY_SEVERITY}
            "cqlring: ${header} or lib${library} not found; on Debian: apt-get install ${hint}")
    endif()
endfunction()

macro(cqlring_find_dependencies)
    if("${ARGV0}" STREQUAL "REQUIRED")
        set(CQLRING_DEPENDENCY_SEVERITY FATAL_ERROR)
        find_package(Threads REQUIRED)
        find_package(ZLIB 1.2.11 REQUIRED)
        find_package(OpenSSL 3.0 REQUIRED)
    else()
        set(CQLRING_DEPENDENCY_SEVERITY VERBOSE)
        find_package(Threads QUIET)
        find_package(ZLIB 1.2.11 QUIET)
        find_package(OpenSSL 3.0 QUIET)
    endif()
    _cqlring_find_library(cqlring::ev ev.h ev libev-dev)
    _cqlring_find_library(cqlring::lz4 lz4.h lz4 liblz4-dev)
    if(TARGET Threads::Threads AND TARGET ZLIB::ZLIB AND TARGET OpenSSL::SSL
            AND TARGET cqlring::ev AND TARGET cqlring::lz4)
        set(CQLRING_DEPENDENCIES_FOUND TRUE)
    else()
        set(CQLRING_DEPENDENCIES_FOUND FALSE)
    endif()
endmacro()
