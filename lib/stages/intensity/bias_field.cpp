#include "stages/intensity/intensity.h"
#include "stages/intensity/random_fields.h"

namespace volpipe {

namespace {

class BiasField final : public PointwiseStage {
 public:
  struct Params {
    std::int64_t degree = 3;
    double magnitude = 0.3;
  };
  explicit BiasField(Params params) : params_(params) {}

  std::shared_ptr<const VoxelStage> for_image(const std::string&, const VolumeInfo& input,
                                              const StageContext& context) const override {
    auto own = std::make_shared<BiasField>(*this);
    own->logarithm_ = random_polynomial_field(input, context, int(params_.degree), params_.magnitude);
    return own;
  }

  void append(Program& program, const PointwiseContext&) const override {
    program.store(Operand::r0).field(logarithm_).add(Op::exp).add(Op::multiply, Operand::r0);
  }

 private:
  Params params_;
  std::shared_ptr<const Field> logarithm_;
};

}  // namespace

StageDefinition stage_bias_field() {
  using P = BiasField::Params;
  return define_stage<BiasField>(
      {.op = "bias_field",
       .family = "intensity",
       .summary =
           "v * exp(p), p a random polynomial of the place: a smooth positive factor as of MR coils, its geometric "
           "mean 1 over the image; one field in the world for all images and components; NaN and infinity stay",
       .example = {{"op", "bias_field"}, {"magnitude", 0.2}}},
      Parameters<P>()
          .add("degree", &P::degree, {.min = 1, .max = 10},
               "highest total degree of the Legendre products P_a(x) P_b(y) P_c(z), with x, y, z from -1 to 1 across "
               "the "
               "images; there is no constant term")
          .add("magnitude", &P::magnitude, {.min = 0},
               "their coefficients are uniform in [-magnitude, magnitude] (MONAI's RandBiasField draws from "
               "coeff_range, "
               "0 to 0.1, and has no mean of 1; TorchIO's RandomBiasField draws from +-0.5 and multiplies monomials)"));
}

}  // namespace volpipe
