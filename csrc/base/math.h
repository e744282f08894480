// Double precision functions of our own: the same bits on every machine, unlike libm. For RoPE tables and scalars.
#pragma once

namespace edgert::math {

// Relative error below 1e-15; sin and cos for |x| < 1e7. NaN and infinity give NaN where no limit exists.
double sin(double x);
double cos(double x);
double exp(double x);
double log(double x);
// REQUIRES: x > 0.
double pow(double x, double y);

}  // namespace edgert::math
