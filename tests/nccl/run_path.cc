// A library whose run path names the folders `first` and `second` beside it.
extern "C" __attribute__((visibility("default"))) int has_run_path;
int has_run_path = 1;
