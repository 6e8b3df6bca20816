// Found by the preprocessor; the declarations come from the shim after translation.
#include "../msl_macros.h"
