#pragma once
#include "formats/pack.h"
