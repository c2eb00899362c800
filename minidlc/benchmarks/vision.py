"""Convolutional benchmark models: LeNet-5, ResNet-18, MobileNet v2.

    model, feeds = resnet18()                       # f32[1, 3, 224, 224] -> f32[1, 1000]
    model, feeds = mobilenet_v2()

K. He et al., "Deep Residual Learning for Image Recognition", 2015; M. Sandler et al.,
"MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018. Treated in course chapter
05_backend_opt.
"""

from __future__ import annotations

from minidlc.benchmarks.builder import Builder, Model

# expansion, channels, repeats, stride of each stage: table 2 of the MobileNetV2 paper
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def lenet() -> Model:
    """LeNet-5 on 28 × 28: two convolutions with pooling, three dense layers."""
    b = Builder("lenet")
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    x = b.input("x", [1, 1, 28, 28])
    x = b.op("MaxPool", b.op("Relu", b.conv(x, 1, 6, 5, pad=2)), **pool)
    x = b.op("MaxPool", b.op("Relu", b.conv(x, 6, 16, 5, pad=0)), **pool)
    return b.build(b.classifier(b.op("Flatten", x, axis=1), 400, 120, 84, 10))


def resnet18() -> Model:
    """ResNet-18 on 224 × 224, batch normalisation not yet folded."""
    b = Builder("resnet18")
    x = b.op("Relu", b.conv_norm(b.input("x", [1, 3, 224, 224]), 3, 64, 7, stride=2))
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for filters in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if filters != 64 and block == 0 else 1
            y = b.op("Relu", b.conv_norm(x, channels, filters, 3, stride=stride))
            y = b.conv_norm(y, filters, filters, 3, gain=0.5)
            if channels != filters:
                x = b.conv_norm(x, channels, filters, 1, stride=stride)
            x = b.op("Relu", b.op("Add", x, y))
            channels = filters
    x = b.op("Flatten", b.op("GlobalAveragePool", x), axis=1)
    return b.build(b.classifier(x, 512, 1000))


def mobilenet_v2() -> Model:
    """MobileNet v2 of width 1 on 224 × 224, batch normalisation not yet folded."""
    b = Builder("mobilenet_v2")

    def relu6(x: str) -> str:
        return b.op("Clip", x, b.scalar(0.0), b.scalar(6.0))

    x = relu6(b.conv_norm(b.input("x", [1, 3, 224, 224]), 3, 32, 3, stride=2))
    channels = 32
    for expansion, filters, repeats, first_stride in _STAGES:
        for n in range(repeats):
            stride, wide, y = first_stride if n == 0 else 1, channels * expansion, x
            if expansion != 1:
                y = relu6(b.conv_norm(y, channels, wide, 1))
            y = relu6(b.conv_norm(y, wide, wide, 3, stride=stride, group=wide))
            y = b.conv_norm(y, wide, filters, 1, gain=1.0)
            x = b.op("Add", x, y) if stride == 1 and channels == filters else y
            channels = filters
    x = relu6(b.conv_norm(x, channels, 1280, 1))
    x = b.op("Flatten", b.op("GlobalAveragePool", x), axis=1)
    return b.build(b.classifier(x, 1280, 1000))
