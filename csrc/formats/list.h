// Every quantised format that the kernels know; one line each. Included inside the namespace of an instruction set,
// after the vector types.
#include "codes/decode.h"
#include "codes/dots.h"
//
#include "codes/byte.h"
#include "codes/field_planes.h"
#include "codes/nibble.h"
#include "codes/nibble_field.h"
#include "codes/nibble_plane.h"
#include "codes/nibble_table.h"
#include "codes/quad_bits.h"
#include "codes/trits.h"
#include "scales/exponent.h"
#include "scales/four_groups.h"
#include "scales/group.h"
#include "scales/half_group.h"
#include "scales/half_group_min.h"
#include "scales/super.h"
#include "scales/super_min.h"
#include "scales/super_min_nibble.h"
//
#include "codes/codebook_planes.h"
#include "formats/field_blocks.h"
#include "formats/nibble_blocks.h"
//
#include "formats/c2.h"
#include "formats/c3.h"
#include "formats/c4.h"
#include "formats/iq4_nl.h"
#include "formats/iq4_xs.h"
#include "formats/mxfp4.h"
#include "formats/p1.h"
#include "formats/p2.h"
#include "formats/p3.h"
#include "formats/p4.h"
#include "formats/p5.h"
#include "formats/p6.h"
#include "formats/p7.h"
#include "formats/p8.h"
#include "formats/q2_k.h"
#include "formats/q3_k.h"
#include "formats/q4_0.h"
#include "formats/q4_1.h"
#include "formats/q4_k.h"
#include "formats/q5_0.h"
#include "formats/q5_1.h"
#include "formats/q5_k.h"
#include "formats/q6_k.h"
#include "formats/q8_0.h"
#include "formats/ternary.h"
#include "formats/tq1_0.h"
#include "formats/tq2_0.h"

template <class... Formats>
struct FormatList {};

using GgmlFormats =
    FormatList<Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, TQ1_0, TQ2_0>;
using QuantizedFormats = FormatList<Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4,
                                    TQ1_0, TQ2_0, P1, P2, P3, P4, P5, P6, P7, P8, C2, C3, C4, Ternary>;
