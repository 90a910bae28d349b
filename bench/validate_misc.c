#include "validate.h"
bool validate_misc(report *r, const char *path) { (void)r; (void)path; return true; }
