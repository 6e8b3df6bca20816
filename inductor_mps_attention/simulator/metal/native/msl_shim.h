// Stands in for the whole of <metal_stdlib> and its parts when Metal text, translated to C++17, is compiled for the
// CPU. A translated file includes this first. Address spaces are gone by then; abi.h has what the runtime provides.
#pragma once
#pragma GCC system_header

#include "shim/config.h"
#include "shim/type_traits.h"
#include "shim/scalars.h"
#include "shim/vector.h"
#include "shim/vector_operators.h"
#include "shim/packed.h"
#include "shim/matrix.h"
#include "shim/type_names.h"
#include "shim/limits.h"
#include "shim/math.h"
#include "shim/integer.h"
#include "shim/relational.h"
#include "shim/geometric.h"
#include "shim/pack.h"
#include "shim/synchronization.h"
#include "shim/simdgroup.h"
#include "shim/quadgroup.h"
#include "shim/simdgroup_matrix.h"
#include "shim/atomic.h"
#include "shim/uniform.h"
#include "shim/entry.h"
