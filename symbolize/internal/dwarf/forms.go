// SPDX-License-Identifier: Apache-2.0

package dwarf

import "fmt"

// Names and values follow the DWARF 5 standard, section 7, and, for GNU extensions, binutils'
// include/dwarf2.def.
const (
	tagCompileUnit       = 0x11
	tagEnumerationType   = 0x04
	tagClassType         = 0x02
	tagStructureType     = 0x13
	tagUnionType         = 0x17
	tagInlinedSubroutine = 0x1d
	tagSubprogram        = 0x2e
	tagPartialUnit       = 0x3c
	tagSkeletonUnit      = 0x4a

	attrSibling         = 0x01
	attrName            = 0x03
	attrStmtList        = 0x10
	attrLowPC           = 0x11
	attrHighPC          = 0x12
	attrCompDir         = 0x1b
	attrAbstractOrigin  = 0x31
	attrDeclLine        = 0x3b
	attrSpecification   = 0x47
	attrRanges          = 0x55
	attrCallFile        = 0x58
	attrCallLine        = 0x59
	attrLinkageName     = 0x6e
	attrStrOffsetsBase  = 0x72
	attrAddrBase        = 0x73
	attrRnglistsBase    = 0x74
	attrMIPSLinkageName = 0x2007
	attrGNUAddrBase     = 0x2133
	unitCompile         = 1
	unitPartial         = 3
	unitSkeleton        = 4
	unitSplitCompile    = 5

	formNone          = 0
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21

	formInLine = 0xffff // not a DWARF value: a string inside .debug_line
)

// attrSpec is one attribute of an abbreviation.
type attrSpec struct {
	attr, form uint16
	implicit   int64
}

// value is an attribute before it is looked up. Depending on form, u is a number, an address, an
// index or an offset. References are offsets in .debug_info and have formRefAddr.
type value struct {
	form uint16
	u    uint64
}

// fixedSize returns the size of a form in bytes, or -1 if it varies.
func fixedSize(form uint16, u *unit) int {
	switch form {
	case formFlagPresent, formImplicitConst:
		return 0
	case formData1, formRef1, formFlag, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2
	case formStrx3, formAddrx3:
		return 3
	case formData4, formRef4, formStrx4, formAddrx4, formRefSup4:
		return 4
	case formAddr, formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formStrp, formSecOffset, formLineStrp, formStrpSup, formGNUStrpAlt, formGNURefAlt:
		return u.offsetSize()
	case formRefAddr:
		if u.version == 2 {
			return 8
		}
		return u.offsetSize()
	}
	return -1
}

// readValue reads one attribute of u. It skips blocks.
func readValue(c *cursor, u *unit, s attrSpec) value {
	form := s.form
	if form == formIndirect {
		form = uint16(c.uleb())
	}
	v := value{form: form}
	switch form {
	case formFlagPresent:
		v.u = 1
	case formImplicitConst:
		v.u = uint64(s.implicit)
	case formData16:
		c.skip(16)
	case formString:
		v.u = c.tell()
		c.skipString()
	case formSdata:
		v.u = uint64(c.sleb())
	case formUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex, formRefUdata:
		v.u = c.uleb()
	case formBlock1:
		c.skip(uint64(c.u8()))
	case formBlock2:
		c.skip(uint64(c.u16()))
	case formBlock4:
		c.skip(uint64(c.u32()))
	case formBlock, formExprloc:
		c.skip(c.uleb())
	default:
		n := fixedSize(form, u)
		if n < 0 {
			c.fail(fmt.Errorf("unknown form %#x", form))
			return value{}
		}
		v.u = c.fixed(n)
	}
	switch form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		v = value{formRefAddr, v.u + u.off}
	}
	return v
}
