#include <ds.h>
#include <stdio.h>

int main(void) {
  ds_comm* comm = NULL;
  if (ds_comm_create("self", NULL, &comm) != DS_OK || ds_comm_size(comm) != 1) {
    fprintf(stderr, "%s\n", ds_last_error_message());
    return 1;
  }
  ds_comm_destroy(comm);
  puts(ds_version());
  return 0;
}
