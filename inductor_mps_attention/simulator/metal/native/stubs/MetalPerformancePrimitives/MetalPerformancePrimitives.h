#pragma once
#error MetalPerformancePrimitives, the tensor operations of Metal 4, cannot be simulated
