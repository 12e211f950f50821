/* SPDX-License-Identifier: Apache-2.0 */

#include "driver/tls_settings.h"

#include <string.h>

#include "driver/failure.h"
#include "driver/fork.h"
#include "driver/lane.h"
#include "driver/session.h"

/* Every string of the options. */
enum { STRINGS = 7 };
static const char **string_at(struct tls_options *options, int index)
{
    const char **const all[STRINGS] = {&options->ca_file,      &options->ca_pem,  &options->certificate_file, &options->key_file,
                                       &options->key_password, &options->ciphers, &options->server_name};
    return all[index];
}

static void settings_free(struct tls_settings *settings)
{
    if (settings == NULL)
        return;
    volatile char *secret = (volatile char *)(uintptr_t)settings->options.key_password;
    while (secret != NULL && *secret != '\0')
        *secret++ = '\0';
    for (int i = 0; i < STRINGS; i++)
        cqr_mem_free((void *)(uintptr_t)*string_at(&settings->options, i));
    cqr_mem_free(settings);
}

static cqlring_status settings_make(const cqlring_tls_options *given, struct tls_settings **out, cqlring_error *error)
{
    if (given->struct_size < sizeof *given)
        return cqr_error(error, CQLRING_INVALID, "TLS options: struct_size is %zu, expected %zu: set it to sizeof(cqlring_tls_options)", given->struct_size,
                         sizeof *given);
    if (given->verify > CQLRING_TLS_NONE)
        return cqr_error(error, CQLRING_INVALID, "TLS options: verify %d (FULL, CHAIN or NONE)", (int)given->verify);
    const int32_t versions[2] = {given->version_min, given->version_max};
    for (int i = 0; i < 2; i++)
        if (versions[i] != 0 && versions[i] != 12 && versions[i] != 13)
            return cqr_error(error, CQLRING_INVALID, "TLS options: %s %d (0 for the default, 12 or 13)", i == 0 ? "version_min" : "version_max", versions[i]);
    if (given->resume > CQLRING_YES)
        return cqr_error(error, CQLRING_INVALID, "TLS options: resume is DEFAULT, NO or YES");
    struct tls_settings *settings = cqr_mem_zalloc(sizeof *settings);
    if (settings == NULL)
        return cqr_error(error, CQLRING_NO_MEMORY, "TLS options: out of memory");
    struct tls_options from = {.ca_file = given->ca_file,
                               .ca_pem = given->ca_pem,
                               .certificate_file = given->certificate_file,
                               .key_file = given->key_file,
                               .key_password = given->key_password,
                               .ciphers = given->ciphers,
                               .server_name = given->server_name};
    settings->options = (struct tls_options){.verify = (uint8_t)given->verify,
                                             .version_min = (uint8_t)given->version_min,
                                             .version_max = (uint8_t)given->version_max,
                                             .resume = given->resume != CQLRING_NO};
    for (int i = 0; i < STRINGS; i++) {
        const char *text = *string_at(&from, i);
        if (text == NULL)
            continue;
        *string_at(&settings->options, i) = cqr_mem_text(text, strlen(text));
        if (*string_at(&settings->options, i) == NULL) {
            settings_free(settings);
            return cqr_error(error, CQLRING_NO_MEMORY, "TLS options: out of memory");
        }
    }
    *out = settings;
    return CQLRING_OK;
}

cqlring_status cqr_tls_settings_take(struct cqlring_cluster *cluster, const cqlring_tls_options *given, cqlring_error *error)
{
    cluster->has_tls = true;
    cqlring_status status = settings_make(given, &cluster->tls_settings, error);
    return status != CQLRING_OK ? status : cqr_tls_context_create(&cluster->tls_settings->options, &cluster->tls, error);
}

void cqr_tls_settings_free(struct cqlring_cluster *cluster)
{
    cqr_tls_context_release(cluster->tls);
    settings_free(cluster->tls_settings);
}

struct tls_context *cqr_cluster_tls(struct cqlring_cluster *cluster)
{
    if (!cluster->has_tls)
        return NULL;
    pthread_mutex_lock(&cluster->lock);
    struct tls_context *context = cqr_tls_context_retain(cluster->tls);
    pthread_mutex_unlock(&cluster->lock);
    return context;
}

cqlring_status cqlring_cluster_reload_tls(cqlring_cluster *cluster, const cqlring_tls_options *tls, cqlring_error *error)
{
    if (cluster == NULL)
        return cqr_error(error, CQLRING_INVALID, "cqlring_cluster_reload_tls: a cluster must be given");
    if (cluster->fork_generation != cqr_fork_generation())
        return cqr_error(error, CQLRING_FORKED, "cqlring_cluster_reload_tls: the cluster belongs to the parent process");
    if (cqr_on_library_thread())
        return cqr_error(error, CQLRING_INVALID, "cqlring_cluster_reload_tls: a callback must not wait, and files are read here");
    if (!cluster->has_tls)
        return cqr_error(error, CQLRING_INVALID, "cqlring_cluster_reload_tls: the cluster was opened without TLS, and stays so: open another one");
    struct tls_settings *settings = NULL;
    struct tls_context *context = NULL;
    cqlring_status status = CQLRING_OK;
    if (tls != NULL)
        status = settings_make(tls, &settings, error);
    pthread_mutex_lock(&cluster->reload_lock); /* one at a time: the files are read outside the cluster's lock */
    if (status == CQLRING_OK)
        status = cqr_tls_context_create(settings != NULL ? &settings->options : &cluster->tls_settings->options, &context, error);
    if (status == CQLRING_OK) {
        pthread_mutex_lock(&cluster->lock);
        struct tls_context *old_context = cluster->tls;
        struct tls_settings *old_settings = cluster->tls_settings;
        cluster->tls = context;
        if (settings != NULL)
            cluster->tls_settings = settings;
        pthread_mutex_unlock(&cluster->lock);
        cqr_tls_context_release(old_context);
        if (settings != NULL)
            settings_free(old_settings);
    } else {
        settings_free(settings);
    }
    pthread_mutex_unlock(&cluster->reload_lock);
    return status;
}
