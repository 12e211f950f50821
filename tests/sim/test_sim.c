/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include "stage.h"
#include "world.h"
int main(void){
    world_init(1,true);
    struct stage_options o; stage_options_init(&o,3);
    struct stage s; stage_nodes(&s,&o);
    stage_open(&s,&o);
    stage_close(&s);
    stage_down(&s);
    world_fini();
    return 0;
}
