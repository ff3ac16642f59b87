// tessera/tessera.h: everything.
#pragma once

#include "tessera/attention.h"
#include "tessera/contract.h"
#include "tessera/cpu.h"
#include "tessera/facts.h"
#include "tessera/flex.h"
#include "tessera/layouts.h"
#include "tessera/legal.h"
#include "tessera/mask.h"
#include "tessera/plan.h"
#include "tessera/plan_file.h"
#include "tessera/reference.h"
#include "tessera/result.h"
#include "tessera/splash.h"
#include "tessera/statistics.h"
#include "tessera/tensor.h"
#include "tessera/version.h"
